// Checks of a machine in words, for logs and people. Thread-safety: pure functions.
#pragma once

#include <string>

#include "proto/legoai/v1/machine_check.pb.h"

namespace legoai::sim {

// "device of slot 0", "all_gather of slots 0 and 3", "disk".
std::string CheckedText(const v1::CheckResult& result);

// Its figures: "64 GB/s to it, 58 GB/s from it, 41000 GFLOP/s"; empty: it has none.
std::string FiguresText(const v1::CheckResult& result);

// One line of all: "device of slot 0: passed in 1.2 s, 64 GB/s to it, ...", "disk: FAILED in 0.1 s: cannot write ...".
std::string ResultText(const v1::CheckResult& result);

}  // namespace legoai::sim
