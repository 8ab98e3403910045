// Workers in words and tables, for people. Thread-safety: pure functions.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <string>

#include "proto/legoai/v1/worker.pb.h"

namespace legoai::cli {

std::string WorkersTable(const google::protobuf::RepeatedPtrField<v1::Worker>& workers);

// What the table has no room for, of one: its faults, its slots' devices and whether they are slowed down, and its last check.
std::string WorkerText(const v1::Worker& worker);

// The last check of the worker's machine: a line for each part of it; of pairs that have passed one together.
std::string CheckText(const v1::MachineCheck& check);

}  // namespace legoai::cli
