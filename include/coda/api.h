// SPDX-License-Identifier: Apache-2.0
// What is declared in a public header is what the library exports, and nothing else: a public
// header opens its namespace as `namespace CODA_API coda`, and all else is compiled with hidden
// visibility.
#pragma once

#define CODA_API [[gnu::visibility("default")]]
