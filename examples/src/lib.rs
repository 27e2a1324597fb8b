//! Examples of dtq; see the numbered folders.
