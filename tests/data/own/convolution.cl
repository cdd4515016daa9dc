/* output[y][x] is the sum over i and j of filter[i][j] * input[y + i][x + j]. */
#define IN_WIDTH (width + filter_width - 1)
#define IN_HEIGHT (height + filter_height - 1)
#define COLUMNS (block_size_x * tile_size_x + filter_width - 1)
#define ROWS (block_size_y * tile_size_y + filter_height - 1)

__kernel void convolution(__global float *output, __global const float *input, __constant float *filter)
{
    const int x0 = get_group_id(0) * block_size_x * tile_size_x, tx = get_local_id(0);
    const int y0 = get_group_id(1) * block_size_y * tile_size_y, ty = get_local_id(1);
#if use_shared
    __local float part[ROWS][COLUMNS];
    for (int i = ty; i < ROWS; i += block_size_y)
        for (int j = tx; j < COLUMNS; j += block_size_x)
            part[i][j] = y0 + i < IN_HEIGHT && x0 + j < IN_WIDTH ? input[(y0 + i) * IN_WIDTH + x0 + j] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
#define INPUT(i, j) part[i][j]
#else
#define INPUT(i, j) input[min(y0 + (i), IN_HEIGHT - 1) * IN_WIDTH + min(x0 + (j), IN_WIDTH - 1)]
#endif
    float sums[tile_size_y][tile_size_x];
    for (int r = 0; r < tile_size_y; r++)
        for (int s = 0; s < tile_size_x; s++)
            sums[r][s] = 0.0f;
    for (int i = 0; i < filter_height; i++)
        for (int j = 0; j < filter_width; j++)
            for (int r = 0; r < tile_size_y; r++)
                for (int s = 0; s < tile_size_x; s++)
                    sums[r][s] += filter[i * filter_width + j] * INPUT(ty + r * block_size_y + i, tx + s * block_size_x + j);
    for (int r = 0; r < tile_size_y; r++)
        for (int s = 0; s < tile_size_x; s++) {
            const int y = y0 + ty + r * block_size_y, x = x0 + tx + s * block_size_x;
            if (y < height && x < width)
                output[y * width + x] = sums[r][s];
        }
}
