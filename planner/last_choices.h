// What a plan decides last: choices that are tried on the best recipes once these are simulated, each simulated again with the
// choice made. Graph mode, and what needs its program (compile.enable), is for CPUs; fused operators also for GPUs where programs
// are asked for, since what a program spares of a GPU's host was never measured.
//
// Masters beside parameters in 16 bits train the bits of parameters in float32. Where no group of ranks shards these, they spare
// making 16-bit values from whole parameters for each use; shards are made into values in any case, on the way to their gather.
//
// What a try gains is the difference between two simulations. Graph mode's is the host time that an eager step takes beyond its
// operators, Device.host_dispatch_seconds for each (simulator/measure/eager_overhead.h measures it); memory stays as it is.
// Fused operators' is that memory is passed over fewer times (an operator costs what its bytes and its statements' arithmetic do)
// and what is not kept. They change roundings and need a compiler where it trains, the same on all hosts: they are tried for what
// is trained anew on one host, together with compile.fall_back_to_eager.
// Thread-safety: constants and pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/open_choices.h"
#include "proto/legoai/v1/recipe.pb.h"

namespace legoai::planner {

struct LastChoice {
  const char* name;  // for people, with the key
  bool spares_host;  // its gain is host time
  double most_gain;  // of a step: no recipe that is further behind the best is worth a try
  // Whether a recipe has it not yet, and it would change something. Rules of legality are not asked.
  bool (*may)(const v1::Recipe&);
  void (*make)(const OpenChoices&, v1::Recipe*);
};

// What is open, in the order in which it is tried: each on top of what the ones before it gave.
std::vector<const LastChoice*> LastChoices(const OpenChoices& open);

// One recipe again with a choice made; indices of the space's survivors.
struct Attempt {
  const LastChoice* choice = nullptr;
  size_t without = 0, with = 0;
};

// Whether ranks hold shards of the parameters' state, for which gradients are reduced and parameters gathered.
bool HasShards(const v1::Recipe& recipe);

}  // namespace legoai::planner
