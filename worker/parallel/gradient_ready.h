// AccumulateGrad as the source of a parameter's "gradient ready" event.
#pragma once

#include <memory>

#include "worker/model/parameter.h"

namespace torch::autograd {
struct Node;
}

namespace legoai::parallel {

// From now on parameter->NotifyGradientReady() is called in each backward that reaches `value`, once, after value.grad() has
// taken up all of that backward's contributions. `parameter` is not owned. The node that comes back must be kept as long as
// notifications are wanted: autograd holds it weakly.
std::shared_ptr<torch::autograd::Node> NotifyOnAccumulate(model::Parameter* parameter);

}  // namespace legoai::parallel
