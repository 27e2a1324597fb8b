//! The examples of dtq stand beside this file: each opens with what it shows and how to run it.
