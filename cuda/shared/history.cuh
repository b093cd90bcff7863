// history: a raw input of the convolution from wherever a source says it lies.
#include "shared/tables.cuh"

// The arrays that sources name. x is [rows, channels].
struct Sources {
    const u32* tables;
    const float* x;
    u32 channels;
    const float* private_slab;
    const float* shared0;
    const float* shared1;
    const float* shared2;
};

// Channel c of the input that the source at word `at` of the tables names.
__device__ __forceinline__ float history(const Sources& s, u32 at, u32 c) {
    const u32 kind = s.tables[at];
    const u32 place = s.tables[at + 1u];
    switch (kind) {
        case SOURCE_ZERO:
            return 0.0f;
        case SOURCE_ROW:
            return s.x[place * s.channels + c];
        case SOURCE_PRIVATE:
            return s.private_slab[place + c];
        case SOURCE_SHARED:
            return s.shared0[place + c];
        case SOURCE_SHARED + 1u:
            return s.shared1[place + c];
        default:
            return s.shared2[place + c];
    }
}
