//! Tests of the tracker: random operations against a model of what replay does, and each operation
//! of the file system with the reason it gives, or none.

mod model;
mod operations;
