// SPDX-License-Identifier: Apache-2.0
// CODA_API exports a namespace from the shared library. Each public header opens its namespace as
// `namespace CODA_API coda`; everything else is compiled with hidden visibility.
#pragma once

#define CODA_API [[gnu::visibility("default")]]
