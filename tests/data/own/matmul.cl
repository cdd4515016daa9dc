/* c = a b, row by row; a block makes BLOCK_M rows and BLOCK_N columns of c, TILE_K elements of each sum at a time. */
#define BLOCK_M (block_size_y * tile_size_y)
#define BLOCK_N (block_size_x * tile_size_x)

__kernel void matmul(__global float *c, __global const float *a, __global const float *b)
{
    __local float a_part[BLOCK_M][TILE_K], b_part[TILE_K][BLOCK_N];
    const int tx = get_local_id(0), ty = get_local_id(1), thread = ty * block_size_x + tx;
    const int column = get_group_id(0) * BLOCK_N, row = get_group_id(1) * BLOCK_M;
    float sums[tile_size_y][tile_size_x];
    for (int r = 0; r < tile_size_y; r++)
        for (int s = 0; s < tile_size_x; s++)
            sums[r][s] = 0.0f;
    for (int k = 0; k < n; k += TILE_K) {
        for (int at = thread; at < BLOCK_M * TILE_K; at += block_size_x * block_size_y)
            a_part[at / TILE_K][at % TILE_K] = a[(row + at / TILE_K) * n + k + at % TILE_K];
        for (int at = thread; at < TILE_K * BLOCK_N; at += block_size_x * block_size_y)
            b_part[at / BLOCK_N][at % BLOCK_N] = b[(k + at / BLOCK_N) * n + column + at % BLOCK_N];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < TILE_K; i++)
            for (int r = 0; r < tile_size_y; r++)
                for (int s = 0; s < tile_size_x; s++)
                    sums[r][s] += a_part[ty + r * block_size_y][i] * b_part[i][tx + s * block_size_x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int r = 0; r < tile_size_y; r++)
        for (int s = 0; s < tile_size_x; s++)
            c[(row + ty + r * block_size_y) * n + column + tx + s * block_size_x] = sums[r][s];
}
