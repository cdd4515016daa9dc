#define grid_size_x 256
#define grid_size_y 1
#define grid_size_z 1
#define block_size_x 16
#define block_size_y 1
#define block_size_z 1
#define width 3
#define kernel_tuner 1
#line 1

#if width == 3
this is no C
#endif
__kernel void twice(__global float* y, __global const float* x, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = 2.0f * x[i];
}
