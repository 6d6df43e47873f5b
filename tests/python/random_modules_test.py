# SPDX-License-Identifier: Apache-2.0
"""torch.compile of 500 random modules (random_modules.py says what they are and runs more)."""

import unittest

from random_modules import failure


# Of LayerScale behind tiny values: a stored sum stood for its summand, of which nothing was left.
# Of softplus behind a norm and a bias, in bf16: the sum was made again of its rounded summand.
FOUND_FAULTS = (301041, 410170)


class RandomModules(unittest.TestCase):
    def test_they_equal_eager(self):
        layers = []
        for seed in (*range(500), *FOUND_FAULTS):
            with self.subTest(seed=seed):
                why, _, found = failure(seed, "plain" if seed in FOUND_FAULTS else None)
                self.assertEqual(why, "")
                layers += found
        fused = sum(layer.is_fused for layer in layers)
        self.assertGreater(fused, 0.8 * len(layers))


if __name__ == "__main__":
    unittest.main()
