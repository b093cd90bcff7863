//! What only the CUDA device has: a library for products, graphs, a folder of compiled kernels.

mod cache;
mod graphs;
mod peers;
mod products;
mod repeats;
