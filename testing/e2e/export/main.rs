//! `extol export`: clients that are there, and a server that ends and is ended.

mod linux;
mod suite;
mod tools;
