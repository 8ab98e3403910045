// Measures this machine's CPU, which plans for clusters of type cpu go by. Torch-free.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::cli {

// Ten seconds with all cores busy, of which standard error is told, and of others that were busy meanwhile; keeps the result in
// the file `path`, which `field` has named. Errors: FieldError of `field` where that cannot be written, NotFound without the
// program that measures, Internal where it fails.
absl::StatusOr<v1::Device> MeasureHost(const std::string& field, const std::string& path);

}  // namespace legoai::cli
