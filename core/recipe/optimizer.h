// The rules of [optimizer]: which keys belong to which optimizer, and the defaults that depend on it.
//
// Thread-safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::parallel {

// Unset: 0.95 with Muon, otherwise 0.
double MomentumOf(const v1::OptimizerSection& section);
// Unset: true with Muon, otherwise false.
bool NesterovOf(const v1::OptimizerSection& section);
// The peak learning rate of the matrices that Muon updates.
double MuonLrOf(const v1::OptimizerSection& section);

struct OptimizerFault {
  std::string key, value, remedy;  // "optimizer.muon_lr"
};

// For a section with its defaults: an unknown name, numbers out of range, and keys of another optimizer that differ from
// `defaults`.
std::vector<OptimizerFault> FaultsOfOptimizer(const v1::OptimizerSection& section, const v1::OptimizerSection& defaults);

}  // namespace legoai::parallel
