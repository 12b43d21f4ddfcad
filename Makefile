# Targets for users of the source tree. The first two install what they need; the scripts they call work without make.
#   make demo                          run one load on a disk, a pool and an SSD, all modelled: speed and price
#   make test                          run all tests
#   make build                         build weir as it is shipped
#   make install PREFIX=/usr/local     install weir, its completions, man pages and mount.weir
#   make uninstall PREFIX=/usr/local   remove them

PREFIX ?= /usr/local
DESTDIR ?=
CARGO_TARGET_DIR ?= target
WEIR ?= $(CARGO_TARGET_DIR)/release/weir

root = $(DESTDIR)$(PREFIX)
bash = $(root)/share/bash-completion/completions/weir
zsh = $(root)/share/zsh/site-functions/_weir
fish = $(root)/share/fish/vendor_completions.d/weir.fish
# mount(8) looks for helpers of file systems in /sbin alone.
helper = $(DESTDIR)/sbin/mount.weir
man = $(root)/share/man

.PHONY: demo test setup build install uninstall

demo:
	@scripts/demo

test:
	@scripts/test

setup:
	@scripts/setup test

build:
	cargo build --release --locked --package weir

$(WEIR):
	cargo build --release --locked --package weir

install: $(WEIR)
	install -D -m 755 $(WEIR) $(root)/bin/weir
	install -d $(dir $(helper))
	ln -sf $(PREFIX)/bin/weir $(helper)
	install -d $(dir $(bash)) $(dir $(zsh)) $(dir $(fish)) $(man)/man1 $(man)/man7
	$(WEIR) generate-completions bash > $(bash)
	$(WEIR) generate-completions zsh > $(zsh)
	$(WEIR) generate-completions fish > $(fish)
	$(WEIR) generate-man $(man)

uninstall:
	rm -f $(root)/bin/weir $(helper) $(bash) $(zsh) $(fish)
	rm -f $(man)/man1/weir.1 $(man)/man1/weir-*.1 $(man)/man7/weir-*.7
