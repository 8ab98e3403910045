// Whether a training goes on in a run directory, for those who only look. Torch-free. Thread-safe.
#pragma once

#include <string>

namespace legoai::launch {

// That run.json says so, and that the process that locked the directory lives on this machine. Takes no lock itself: who begins
// to train at this moment is not kept from it.
bool IsTraining(const std::string& run_directory);

}  // namespace legoai::launch
