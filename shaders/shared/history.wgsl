// history: a raw input of the convolution from wherever a source says it lies.
//
// The file that includes this declares p.channels, tables, x [rows, channels], private_slab and shared0..2.
// `private_slab` may be read-only or writable there.

// Channel c of the input that the source at word `at` of the tables names.
fn history(at: u32, c: u32) -> f32 {
    let kind = tables[at];
    let place = tables[at + 1u];
    switch kind {
        case SOURCE_ZERO: {
            return 0.0;
        }
        case SOURCE_ROW: {
            return x[place * p.channels + c];
        }
        case SOURCE_PRIVATE: {
            return private_slab[place + c];
        }
        case SOURCE_SHARED: {
            return shared0[place + c];
        }
        case SOURCE_SHARED + 1u: {
            return shared1[place + c];
        }
        default: {
            return shared2[place + c];
        }
    }
}
