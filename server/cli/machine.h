// The environment of `lego` on this machine: the programs beside it, and the file with this machine's measured CPU.
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

// Warns once on standard error if other processes were busy while this device was measured.
void WarnIfMeasuredBusy(const v1::Device& device);

// `--cluster`, with this machine's measured CPU for type "cpu"; warns if the machine was busy when measured.
absl::StatusOr<v1::Cluster> ResolveCluster(const std::string& text);

// Measures this machine's CPU, which plans for clusters of type cpu use.

// Takes ten seconds with all cores busy, reports that and other busy processes on standard error, and saves the result to the
// file `path`, which `field` has named. Errors: FieldError of `field` if it cannot be written, NotFound if the measuring program
// is missing, Internal if it fails.
absl::StatusOr<v1::Device> MeasureHost(const std::string& field, const std::string& path);

}  // namespace legoai::cli
