//! weir: the program. This file is its table of contents.

fn main() {}
