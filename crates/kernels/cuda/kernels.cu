// All kernels; compiled for the GPU, and by the host's compiler for tests.
#include "portable.h"

KERNELS_BEGIN
#include "attention.cuh"
#include "attention_bytes.cuh"
#include "attention_tiles.cuh"
#include "attention_wide.cuh"
#include "canvas.cuh"
#include "experts.cuh"
#include "experts_groups.cuh"
#include "filters.cuh"
#include "gemm.cuh"
#include "groups.cuh"
#include "groups_widened.cuh"
#include "packed.cuh"
#include "qkv.cuh"
#include "residual.cuh"
#include "ring.cuh"
#include "rows.cuh"
#include "score.cuh"
KERNELS_END
