/* SPDX-License-Identifier: Apache-2.0 */
/* The command `carole`: the built-in models only. */
#include "engine/carole.h"

int main(int argc, char **argv) {
    return crl_main(argc, argv, NULL);
}
