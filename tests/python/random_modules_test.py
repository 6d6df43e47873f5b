# SPDX-License-Identifier: Apache-2.0
"""torch.compile of some random modules (random_modules.py says what they are and runs more)."""

import unittest

from random_modules import failure


class RandomModules(unittest.TestCase):
    def test_they_equal_eager(self):
        layers = []
        for seed in range(40):
            with self.subTest(seed=seed):
                why, _, found = failure(seed)
                self.assertEqual(why, "")
                layers += found
        fused = sum(layer.is_fused for layer in layers)
        self.assertGreater(fused, 0.8 * len(layers))


if __name__ == "__main__":
    unittest.main()
