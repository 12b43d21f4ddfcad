"""libnbd.py SEED ROUNDS URI...: reads and writes of 4 KiB to 4 MiB, 1 to 32 in flight, over each
export, with structured replies and without; every byte read is compared with what was written."""

import random
import sys

import nbd

SHORTEST, LONGEST = 4 << 10, 4 << 20
# Bytes requested at each queue depth.
EACH = 12 << 20


class Export:
    """An export, and what is in it."""

    def __init__(self, uri, chance):
        self.uri, self.chance = uri, chance
        handle = nbd.NBD()
        handle.connect_uri(uri)
        self.content = bytearray(chance.randbytes(handle.get_size()))
        for at in range(0, len(self.content), 1 << 20):
            handle.pwrite(self.content[at : at + (1 << 20)], at)
        handle.shutdown()

    def try_out(self, structured, depth, noise):
        handle = nbd.NBD()
        handle.set_request_structured_replies(structured)
        handle.connect_uri(self.uri)
        assert handle.get_structured_replies_negotiated() == structured
        flight, asked, count = {}, 0, 0
        while asked < EACH or flight:
            while asked < EACH and len(flight) < depth:
                started = self.start(handle, flight, noise)
                if not started:
                    break
                asked, count = asked + started, count + 1
            self.take_one(handle, flight)
        handle.shutdown()
        return count

    def start(self, handle, flight, noise):
        """Starts a request; of those in flight no two touch the same bytes unless both read."""
        chance = self.chance
        length = min(int(SHORTEST * 2 ** chance.uniform(0, 10)) // 512 * 512, LONGEST)
        if chance.random() < 0.4:
            length = SHORTEST
        at = chance.randrange((len(self.content) - length) // 512 + 1) * 512
        writes = chance.random() < 0.2
        for _, other, other_length, other_buffer in flight.values():
            if (writes or other_buffer is None) and at < other + other_length and other < at + length:
                return 0
        if writes:
            start = chance.randrange(len(noise) - length)
            data = noise[start : start + length]
            self.content[at : at + length] = data
            buffer, cookie = None, handle.aio_pwrite(nbd.Buffer.from_bytearray(data), at)
        else:
            buffer = nbd.Buffer(length)
            cookie = handle.aio_pread(buffer, at)
        flight[cookie] = (cookie, at, length, buffer)
        return length

    def take_one(self, handle, flight):
        """Waits until a request is over, and compares what was read."""
        cookie = handle.aio_peek_command_completed()
        while cookie == 0:
            handle.poll(60000) or sys.exit(f"{self.uri}: no answer for a minute: {len(flight)} in flight")
            cookie = handle.aio_peek_command_completed()
        assert handle.aio_command_completed(cookie)
        _, at, length, buffer = flight.pop(cookie)
        if buffer is not None and buffer.to_bytearray() != self.content[at : at + length]:
            sys.exit(f"{self.uri}: {length} bytes at {at} are not what was written")


def main():
    seed, rounds = int(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(seed)
    noise = bytearray(chance.randbytes(2 * LONGEST))
    exports = [Export(uri, chance) for uri in sys.argv[3:]]
    count = 0
    for _ in range(rounds):
        for export in exports:
            for structured in (False, True):
                depth = chance.choice((1, 2, 4, 8, 16, 32))
                count += export.try_out(structured, depth, noise)
    print(f"{count} requests over {len(exports)} exports")


main()
