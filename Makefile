# Two commands do everything; both install what they need first.
#   make demo    the same load on a disk, on a pool and on an SSD, all modelled: speed and price
#   make test    every test there is
# The scripts they call work without make, too.

.PHONY: demo test setup

demo:
	@scripts/demo

test:
	@scripts/test

setup:
	@scripts/setup test
