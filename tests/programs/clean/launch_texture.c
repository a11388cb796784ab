/* A kernel that reads textures of an array, a mipmapped array and linear memory, and reads and
 * writes a surface; launched alone and as the node of a graph. */
#include "program.h"

enum { WIDTH = 64, HEIGHT = 8, LEVELS = 2 };

/* sample(out, plane, levels, line, surface): one thread an element. */
PTX_TEXT PTX_SAMPLE[] = PTX_HEAD
    ".visible .entry sample(.param .u64 out, .param .u64 plane, .param .u64 levels,\n"
    "                       .param .u64 line, .param .u64 surface)\n{\n"
    " .reg .b64 %out, %plane, %levels, %line, %surface, %offset;\n"
    " .reg .b32 %x, %y, %width, %byte, %sum, %old, %new, %index, %v<5>;\n"
    " .reg .f32 %fx, %fy, %lod;\n"
    " ld.param.u64 %out, [out];\n ld.param.u64 %plane, [plane];\n"
    " ld.param.u64 %levels, [levels];\n ld.param.u64 %line, [line];\n"
    " ld.param.u64 %surface, [surface];\n"
    " cvta.to.global.u64 %out, %out;\n"
    " mov.u32 %x, %tid.x;\n mov.u32 %y, %ctaid.x;\n mov.u32 %width, %ntid.x;\n"
    " tex.2d.v4.u32.s32 {%v1, %v2, %v3, %v4}, [%plane, {%x, %y}];\n"
    " mov.u32 %sum, %v1;\n"
    " tex.1d.v4.u32.s32 {%v1, %v2, %v3, %v4}, [%line, {%x}];\n"
    " add.u32 %sum, %sum, %v1;\n"
    /* The middle of an element of the second level: (x + 0.5) / 64, (y + 0.5) / 8. */
    " cvt.rn.f32.u32 %fx, %x;\n add.f32 %fx, %fx, 0f3F000000;\n mul.f32 %fx, %fx, 0f3C800000;\n"
    " cvt.rn.f32.u32 %fy, %y;\n add.f32 %fy, %fy, 0f3F000000;\n mul.f32 %fy, %fy, 0f3E000000;\n"
    " mov.f32 %lod, 0f3F800000;\n"
    " tex.level.2d.v4.u32.f32 {%v1, %v2, %v3, %v4}, [%levels, {%fx, %fy}], %lod;\n"
    " add.u32 %sum, %sum, %v1;\n"
    " shl.b32 %byte, %x, 2;\n"
    " suld.b.2d.b32.trap {%old}, [%surface, {%byte, %y}];\n"
    " add.u32 %sum, %sum, %old;\n"
    " add.u32 %new, %old, 1;\n"
    " sust.b.2d.b32.trap [%surface, {%byte, %y}], {%new};\n"
    " mad.lo.u32 %index, %y, %width, %x;\n"
    " mul.wide.u32 %offset, %index, 4;\n"
    " add.u64 %out, %out, %offset;\n"
    " st.global.u32 [%out], %sum;\n"
    " ret;\n}\n";

static uint32_t bytes[HEIGHT][WIDTH], out[HEIGHT][WIDTH];

/* Fills an array from the host: element (x, y) is start + 100 * y + x. */
static void fill(CUarray array, unsigned width, unsigned height, uint32_t start)
{
    for (unsigned y = 0; y < height; y++)
        for (unsigned x = 0; x < width; x++)
            bytes[y][x] = start + 100 * y + x;
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = bytes,
                          .srcPitch = sizeof bytes[0], .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array, .WidthInBytes = width * 4, .Height = height};
    CHECK(cuMemcpy2D(&copy));
}

static CUtexObject texture(CUDA_RESOURCE_DESC resource, unsigned flags)
{
    CUtexObject object = 0;
    CUDA_TEXTURE_DESC desc;
    memset(&desc, 0, sizeof desc);
    desc.addressMode[0] = desc.addressMode[1] = desc.addressMode[2] = CU_TR_ADDRESS_MODE_CLAMP;
    desc.flags = CU_TRSF_READ_AS_INTEGER | flags;
    desc.maxMipmapLevelClamp = 1;
    CHECK(cuTexObjectCreate(&object, &resource, &desc, NULL));
    return object;
}

/* What the kernel writes when the surface has been counted up that often. */
static uint32_t expected(uint32_t x, uint32_t y, uint32_t times)
{
    uint32_t plane = 100 * y + x, line = 7 * x;
    uint32_t level = 500000 + 100 * (y / 2) + x / 2, surface = 20000 + 100 * y + x + times;
    return plane + line + level + surface;
}

static void check(const char *label, CUdeviceptr memory, uint32_t times)
{
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(out, memory, sizeof out));
    show_u32(label, out[1], 4);
    for (uint32_t y = 0; y < HEIGHT; y++)
        for (uint32_t x = 0; x < WIDTH; x++)
            EXPECT_KERNEL(out[y][x] == expected(x, y, times));
}

int main(void)
{
    begin();
    CUarray plane = NULL, canvas = NULL, level = NULL;
    CUmipmappedArray levels = NULL;
    CUdeviceptr line = 0, memory = 0;
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = WIDTH, .Height = HEIGHT,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CHECK(cuArray3DCreate(&plane, &shape));
    CHECK(cuMipmappedArrayCreate(&levels, &shape, LEVELS));
    shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    CHECK(cuArray3DCreate(&canvas, &shape));
    CHECK(cuMemAlloc(&line, WIDTH * 4));
    CHECK(cuMemAlloc(&memory, sizeof out));
    CHECK(cuMemsetD8(memory, 0, sizeof out));
    fill(plane, WIDTH, HEIGHT, 0);
    fill(canvas, WIDTH, HEIGHT, 20000);
    for (unsigned number = 0; number < LEVELS; number++) {
        CHECK(cuMipmappedArrayGetLevel(&level, levels, number));
        fill(level, WIDTH >> number, HEIGHT >> number, 500000 * number);
    }
    for (uint32_t x = 0; x < WIDTH; x++)
        bytes[0][x] = 7 * x;
    CHECK(cuMemcpyHtoD(line, bytes, WIDTH * 4));

    CUDA_RESOURCE_DESC of_canvas = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = canvas};
    CUtexObject objects[] = {
        texture((CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY,
                                     .res.array.hArray = plane}, 0),
        texture((CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                                     .res.mipmap.hMipmappedArray = levels},
                CU_TRSF_NORMALIZED_COORDINATES),
        texture((CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_LINEAR,
                                     .res.linear = {.devPtr = line, .numChannels = 1,
                                                    .format = CU_AD_FORMAT_UNSIGNED_INT32,
                                                    .sizeInBytes = WIDTH * 4}}, 0),
    };
    CUsurfObject surface = 0;
    CHECK(cuSurfObjectCreate(&surface, &of_canvas));

    CUmodule module = load_ptx(PTX_SAMPLE);
    CUfunction sample = function_of(module, "sample");
    void *parameters[] = {&memory, &objects[0], &objects[1], &objects[2], &surface};
    launch(sample, HEIGHT, WIDTH, NULL, parameters);
    check("alone", memory, 0);

    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CUgraphNode node = NULL;
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = sample, .gridDimX = HEIGHT, .gridDimY = 1,
                                      .gridDimZ = 1, .blockDimX = WIDTH, .blockDimY = 1,
                                      .blockDimZ = 1, .kernelParams = parameters};
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel));
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    CHECK(cuGraphLaunch(executable, NULL));
    check("in a graph", memory, 1);

    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuModuleUnload(module));
    CHECK(cuSurfObjectDestroy(surface));
    for (int i = 0; i < 3; i++)
        CHECK(cuTexObjectDestroy(objects[i]));
    CHECK(cuMemFree(memory));
    CHECK(cuMemFree(line));
    CHECK(cuArrayDestroy(canvas));
    CHECK(cuMipmappedArrayDestroy(levels));
    CHECK(cuArrayDestroy(plane));
    end();
    return success();
}
