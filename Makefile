# Two commands do everything; both install what they need first.
#   make demo    a pool of three paced devices, a workload, a live picture
#   make test    every test there is
# The scripts they call work without make, too.

.PHONY: demo test setup

demo:
	@scripts/demo

test:
	@scripts/test

setup:
	@scripts/setup test
