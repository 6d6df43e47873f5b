#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Square bf16 products by mma.sync on a GPU that has faster instructions, for comparison with the
targets sm80 and sm89 (`coda bench programs/product_tn.coda --target sm80`):

- Triton's, compiled for compute capability 8.0 and assembled for this GPU; the fastest of TRITON
- cuBLASLt's kernels for Ampere: all its algorithms with large tiles are run once under PyTorch's
  profiler, and those whose kernels are named for Ampere are timed
- a loop of mma.sync without memory accesses, the limit of all of them

    products_mma_sync.py --sizes 2048 4096 8192

Prints a line of JSON for each size and layout, in TFLOP/s; nvcc must be on the path. Layouts are
those of coda's names: tn is x · Wᵀ. Each candidate runs for SECONDS without a pause, so that the
GPU is at its power limit.
"""

import argparse
import ctypes
import itertools
import json
import multiprocessing
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SECONDS = 0.4
LAYOUTS = ("tn", "nn", "nt")
# Rows, columns and depth of a tile, stages, warps.
TRITON = [(128, 256, 32, 3, 8), (256, 128, 32, 3, 8), (128, 128, 32, 4, 4), (128, 128, 64, 3, 4),
          (128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 256, 32, 4, 8), (256, 128, 32, 4, 8)]

# Of cublasLt.h.
COMPUTE_32F, REAL_32F, REAL_16BF = 68, 0, 14
TRANSPOSES = (3, 4)  # attributes of a product: of its first and second operand
TILES, STAGES = (6, 1), (13, 6)  # attributes: of an algorithm's capabilities, of its configuration
LARGE_TILES = (19, 20, 21, 23, 24)  # 64 x 256, 128 x 128, 256 x 64, 128 x 256, 256 x 128

LOOP = r"""
extern "C" __global__ void __launch_bounds__(256) loop(float* out, int steps) {
  float d[16][4] = {};
  unsigned a[4][4], b[4][2];
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) a[i][j] = 0x3c003c00u * (threadIdx.x % 3 == 0) + i + j;
    for (int j = 0; j < 2; ++j) b[i][j] = 0x3c013c01u * (threadIdx.x % 5 == 1) + i * j;
  }
  for (int k = 0; k < steps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[4 * i + j][0]), "+f"(d[4 * i + j][1]), "+f"(d[4 * i + j][2]),
                       "+f"(d[4 * i + j][3])
                     : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]),
                       "r"(b[j][1]));
  float sum = 0;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 4; ++j) sum += d[i][j];
  if (sum == 12345.678f) out[threadIdx.x] = sum;
}"""


@triton.jit
def product(a, b, c, D: tl.constexpr, am: tl.constexpr, ak: tl.constexpr, bk: tl.constexpr,
            bn: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
            BAND: tl.constexpr):
    band = tl.program_id(0) // (BAND * (D // BN))
    rows = min(D // BM - band * BAND, BAND)
    inside = tl.program_id(0) % (BAND * (D // BN))
    m = (band * BAND + inside % rows) * BM + tl.arange(0, BM)
    n = inside // rows * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    from_a = a + m[:, None] * am + k[None, :] * ak
    from_b = b + k[:, None] * bk + n[None, :] * bn
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, D // BK):
        sums = tl.dot(tl.load(from_a), tl.load(from_b), sums)
        from_a += BK * ak
        from_b += BK * bk
    tl.store(c + m[:, None] * D + n[None, :], sums.to(tl.bfloat16))


def transposed(layout: str) -> tuple[bool, bool]:
    """Whether A is stored [K, M], and whether B is stored [N, K]."""
    return layout == "nt", layout == "tn"


def assembled(text: str, suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = (pathlib.Path(folder) / f"kernel.{kind}" for kind in (suffix, "cubin"))
        source.write_text(text)
        subprocess.run(["nvcc", "-arch=sm_90", "-cubin", "-o", cubin, source], check=True,
                       capture_output=True)
        return cubin.read_bytes()


def compiled(job: tuple) -> tuple:
    """A kernel of Triton's: its job, machine code, name and bytes of shared memory."""
    layout, size, (rows, columns, depth, stages, warps) = job
    is_a, is_b = transposed(layout)
    constants = {"D": size, "am": 1 if is_a else size, "ak": size if is_a else 1,
                 "bk": 1 if is_b else size, "bn": size if is_b else 1, "BM": rows, "BN": columns,
                 "BK": depth, "BAND": 8}
    source = ASTSource(fn=product, constexprs=constants,
                       signature={"a": "*bf16", "b": "*bf16", "c": "*bf16",
                                  **{name: "constexpr" for name in constants}},
                       attrs={(i,): [["tt.divisibility", 16]] for i in range(3)})
    made = triton.compile(source, target=GPUTarget("cuda", 80, 32),
                          options={"num_warps": warps, "num_stages": stages})
    return job, assembled(made.asm["ptx"], "ptx"), made.metadata.name, made.metadata.shared


def require(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} failed with the code {code}")


def stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


class Kernel:
    """A function of a cubin; called with the number of blocks and 8-byte arguments."""

    def __init__(self, cubin: bytes, name: str, shared: int, threads: int) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.threads, self.shared = threads, shared
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        require(self.driver.cuModuleLoadData(ctypes.byref(module), cubin), "loading a kernel")
        require(self.driver.cuModuleGetFunction(ctypes.byref(self.function), module,
                                                name.encode()), "finding a kernel")
        most_shared = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        require(self.driver.cuFuncSetAttribute(self.function, most_shared, shared),
                "asking for shared memory")

    def __call__(self, blocks: int, *arguments: int) -> None:
        values = [ctypes.c_void_p(value) for value in arguments]
        places = (ctypes.c_void_p * len(values))(
            *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values))
        require(self.driver.cuLaunchKernel(self.function, blocks, 1, 1, self.threads, 1, 1,
                                           self.shared, stream(), places, None), "a launch")


def sustained_ms(call, seconds: float = SECONDS) -> float:
    """Of a call, in the second half of `seconds` of calls."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def milliseconds(calls: int) -> float:
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop) / calls

    for _ in range(3):
        call()
    calls = max(2, int(seconds / 2 * 1e3 / max(milliseconds(2), 1e-3)))
    milliseconds(calls)
    return milliseconds(calls)


def bare_loop() -> float:
    """TFLOP/s."""
    kernel = Kernel(assembled(LOOP, "cu"), "loop", 0, 256)
    out = torch.empty(256, device="cuda")
    steps, blocks = 4000, 2 * torch.cuda.get_device_properties(0).multi_processor_count
    ms = sustained_ms(lambda: kernel(blocks, out.data_ptr(), steps))
    return blocks * 8 * steps * 16 * (2 * 16 * 8 * 16) / ms / 1e9


class CublasLt:
    """All algorithms of cuBLASLt for a square product. Its matrices are column-major, so it
    computes cᵀ = bᵀ · aᵀ."""

    def __init__(self, layout: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        self.lt = ctypes.CDLL("libcublasLt.so.13")
        self.handle, self.product, self.shape = (ctypes.c_void_p() for _ in range(3))
        require(self.lt.cublasLtCreate(ctypes.byref(self.handle)), "starting cuBLASLt")
        require(self.lt.cublasLtMatmulDescCreate(ctypes.byref(self.product), COMPUTE_32F, REAL_32F),
                "describing a product")
        for attribute, flag in zip(TRANSPOSES, reversed(transposed(layout))):
            value = ctypes.c_int(int(flag))
            require(self.lt.cublasLtMatmulDescSetAttribute(
                self.product, attribute, ctypes.byref(value), ctypes.c_size_t(4)), "a transpose")
        size = a.shape[0]
        require(self.lt.cublasLtMatrixLayoutCreate(
            ctypes.byref(self.shape), REAL_16BF, ctypes.c_uint64(size), ctypes.c_uint64(size),
            ctypes.c_int64(size)), "describing a matrix")
        self.work = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        self.a, self.b, self.c = a, b, c
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)

    def run(self, algorithm) -> int:
        address = ctypes.c_void_p
        return self.lt.cublasLtMatmul(
            self.handle, self.product, ctypes.byref(self.one), address(self.b.data_ptr()),
            self.shape, address(self.a.data_ptr()), self.shape, ctypes.byref(self.zero),
            address(self.c.data_ptr()), self.shape, address(self.c.data_ptr()), self.shape,
            algorithm, address(self.work.data_ptr()), ctypes.c_size_t(self.work.numel()), stream())

    def algorithms(self) -> list:
        """Those with large tiles that this product can have."""
        types = (COMPUTE_32F, REAL_32F, *[REAL_16BF] * 4)
        ids, count = (ctypes.c_int * 400)(), ctypes.c_int()
        require(self.lt.cublasLtMatmulAlgoGetIds(self.handle, *types, 400, ids,
                                                 ctypes.byref(count)), "listing algorithms")
        found = []
        for number in ids[:count.value]:
            plain = (ctypes.c_uint64 * 8)()
            if self.lt.cublasLtMatmulAlgoInit(self.handle, *types, number, plain):
                continue
            tiles = [tile for tile in self.capability(plain, TILES[0]) if tile in LARGE_TILES]
            for choice in itertools.product(tiles, self.capability(plain, STAGES[0]) or [0]):
                algorithm, result = (ctypes.c_uint64 * 8)(*plain), (ctypes.c_uint64 * 16)()
                failed = False
                for (_, attribute), value in zip((TILES, STAGES), choice):
                    value = ctypes.c_uint32(value)
                    failed |= bool(self.lt.cublasLtMatmulAlgoConfigSetAttribute(
                        algorithm, attribute, ctypes.byref(value), ctypes.c_size_t(4)))
                if not failed and not self.lt.cublasLtMatmulAlgoCheck(
                        self.handle, self.product, *[self.shape] * 4, algorithm,
                        result) and not self.run(algorithm):
                    found.append(algorithm)
        torch.cuda.synchronize()
        return found

    def capability(self, algorithm, attribute: int) -> list[int]:
        values, written = (ctypes.c_uint32 * 2000)(), ctypes.c_size_t()
        failed = self.lt.cublasLtMatmulAlgoCapGetAttribute(
            algorithm, attribute, values, ctypes.c_size_t(8000), ctypes.byref(written))
        return [] if failed else list(values[:written.value // 4])

    def fastest_for_ampere(self) -> tuple[float, str] | None:
        """Milliseconds and the kernel's name."""
        algorithms = self.algorithms()
        with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for algorithm in algorithms:
                self.run(algorithm)
                torch.cuda.synchronize()
        kernels = sorted((event for event in profile.events()
                          if event.device_type == torch.autograd.DeviceType.CUDA
                          and re.search("gemm|cutlass|nvjet", event.name.lower())),
                         key=lambda event: event.time_range.start)
        if len(kernels) != len(algorithms):
            return None  # an algorithm of several kernels: names cannot be assigned
        known = sorted(((event.time_range.elapsed_us(), i) for i, event in enumerate(kernels)
                        if re.search("ampere|cutlass_80|s16816", event.name)
                        and "sm90" not in event.name))
        timed = [(sustained_ms(lambda i=i: self.run(algorithms[i])), kernels[i].name)
                 for _, i in known[:6]]
        return min(timed) if timed else None


def measure(size: int, layout: str, kernels: list[tuple]) -> dict:
    torch.manual_seed(0)
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    is_a, is_b = transposed(layout)
    expected = (a.T if is_a else a).float() @ (b.T if is_b else b).float()
    timed = []
    for (_, _, tile), cubin, name, shared in kernels:
        kernel = Kernel(cubin, name, shared, 32 * tile[4])
        blocks = (size // tile[0]) * (size // tile[1])

        def call(kernel=kernel, blocks=blocks):
            kernel(blocks, a.data_ptr(), b.data_ptr(), c.data_ptr(), 0, 0)

        c.zero_()
        call()
        error = ((c.float() - expected).norm() / expected.norm()).item()
        if error > 1e-2:
            raise RuntimeError(f"Triton's kernel with the tile {tile} has an error of {error}")
        timed.append((sustained_ms(call, 0.1), tile, call))
    rate = 2e-9 * size ** 3
    _, tile, call = min(timed, key=lambda one: one[0])
    row = {"size": size, "layout": layout, "triton": round(rate / sustained_ms(call), 1),
           "triton_tile": tile}
    cublas = CublasLt(layout, a, b, c).fastest_for_ampere()
    if cublas is not None:
        row |= {"cublasLt_ampere": round(rate / cublas[0], 1), "cublasLt_kernel": cublas[1]}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2048, 4096, 8192])
    sizes = parser.parse_args().sizes
    if not torch.cuda.is_available():
        sys.exit("products_mma_sync.py needs a GPU")
    jobs = list(itertools.product(LAYOUTS, sizes, TRITON))
    with multiprocessing.get_context("spawn").Pool() as pool:
        kernels = pool.map(compiled, jobs, chunksize=1)
    torch.zeros(1, device="cuda")  # the context of the driver
    print(json.dumps({"gpu": torch.cuda.get_device_name(),
                      "mma_sync_loop": round(bare_loop(), 1)}), flush=True)
    for size, layout in itertools.product(sizes, LAYOUTS):
        own = [kernel for kernel in kernels if kernel[0][:2] == (layout, size)]
        print(json.dumps(measure(size, layout, own)), flush=True)


if __name__ == "__main__":
    main()
