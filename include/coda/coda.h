// SPDX-License-Identifier: Apache-2.0
// All of the library's public headers.
#pragma once

#include "coda/api.h"
#include "coda/backend.h"
#include "coda/builders.h"
#include "coda/compile.h"
#include "coda/device.h"
#include "coda/dim.h"
#include "coda/dtype.h"
#include "coda/elementwise.h"
#include "coda/error.h"
#include "coda/float16.h"
#include "coda/graph.h"
#include "coda/plan.h"
#include "coda/program.h"
#include "coda/program_builder.h"
#include "coda/rates.h"
#include "coda/session.h"
#include "coda/tensor.h"
#include "coda/version.h"
