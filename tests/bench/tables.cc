// SPDX-License-Identifier: Apache-2.0
// Prints every row of the published tables beside its prediction (docs/planner.md).
#include "tests/cli/tables.h"

int main() {
    double worst = 0;
    for (const std::vector<tables::Row> &rows :
         {tables::sc21(), tables::recompute(), tables::h100(), tables::gpipe()}) {
        tables::print(rows, stdout);
        for (const tables::Row &row : rows)
            worst = std::fmax(worst, std::fabs(row.error()));
    }
    printf("largest error %.1f %%\n", 100 * worst);
    return worst <= 0.1 ? 0 : 1;
}
