// SPDX-License-Identifier: Apache-2.0
// What a TensorMap holds on a CPU: a rectangle of a matrix of 16-bit or 8-bit elements, and a box.
#pragma once

struct HostMap {
  unsigned char* first;
  long long rows;
  long long columns;
  long long stride;  // elements between rows
  unsigned box_rows;
  unsigned box_columns;
  unsigned bytes;         // of an element
  long long matrix_rows;  // of a stack of matrices; 0: one matrix
};
