# SPDX-License-Identifier: Apache-2.0
"""A step's time is divided among its kernels without a rest: by their names, each moment once, and
with what no kernel fills."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import step_parts  # noqa: E402

_KERNELS = {
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT": "products",
    "void cublasLt::splitKreduce_kernel<32>": "products",
    "triton_tem_fused_mm_1": "products",
    "weight_gradient_kernel": "products",  # ours
    "w_kernel": "products",  # ours
    "tile_tiles": "the rest",  # ours, without a product
    "finalize_vectors": "the rest",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_3": "attention",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<Fused>": "optimizer",
    "triton_red_fused_native_layer_norm_3": "the rest",
    "void at::native::embedding_backward_kernel<float>(x)": "the rest",
    "liger_cross_entropy_kernel": "the rest",
    "Memcpy DtoD (Device -> Device)": "the rest",
}


class StepParts(unittest.TestCase):
    def test_kernels_are_told_by_their_names(self):
        self.assertEqual({name: step_parts.part_of(name) for name in _KERNELS}, _KERNELS)

    def test_each_moment_counts_once(self):
        parts, rest = step_parts.parts_of_events([
            ("triton_poi_fused_add_0", 22000, 30000), ("nvjet_a", 0, 10000),
            ("w_kernel", 5000, 20000), ("Memcpy DtoD", 24000, 26000)], steps=2)
        self.assertEqual(parts, {"attention": 0, "optimizer": 0, "products": 10, "the rest": 4,
                                 "nothing": 1})
        self.assertEqual(rest, {"triton_poi_fused_add_0": 4, "Memcpy DtoD": 0})


if __name__ == "__main__":
    unittest.main()
