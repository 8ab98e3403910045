// What surrounds `lego` on this machine: the programs beside it, and the file with this machine's measured CPU.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/hardware/host.h"
#include "proto/legoai/v1/cluster.pb.h"
#include "proto/legoai/v1/hardware.pb.h"

namespace legoai::cli {

// Paths of the programs that `lego` starts: the environment variable LEGOAI_SIM, LEGOAI_TRAINER or LEGOAI_MEASURE if it is set;
// otherwise the folder of `lego` (an installed package), or the build's output tree.
// Errors: NotFound, saying how to build it.
absl::StatusOr<std::string> FindSim();
absl::StatusOr<std::string> FindTrainer();
absl::StatusOr<std::string> FindMeasure();

// The file with this machine's measured CPU.
using sim::HostDevicePath;
using sim::LoadHostDevice;

// One line on standard error where others were busy while this device was measured; the same line once.
void WarnIfMeasuredBusy(const v1::Device& device);

// `--cluster`, with this machine's measured CPU for type "cpu"; standard error is told if that was measured busy.
absl::StatusOr<v1::Cluster> ResolveCluster(const std::string& text);

// Measures this machine's CPU, which plans for clusters of type cpu go by.

// Ten seconds with all cores busy, of which standard error is told, and of others that were busy meanwhile; keeps the result in
// the file `path`, which `field` has named. Errors: FieldError of `field` where that cannot be written, NotFound without the
// program that measures, Internal where it fails.
absl::StatusOr<v1::Device> MeasureHost(const std::string& field, const std::string& path);

}  // namespace legoai::cli
