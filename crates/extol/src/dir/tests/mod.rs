//! Tests on images that mke2fs made, in memory, checked by e2fsck and by Linux.

mod churn;
mod collide;
mod fold;
mod hostile;
mod lab;
mod levels;
mod matrix;
mod size;
