/* SPDX-License-Identifier: Apache-2.0 */
/* The installed public header, <carole/carole.h>. */
#pragma once

#include "engine/carole.h"
