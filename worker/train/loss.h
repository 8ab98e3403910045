// The loss function of language models: cross entropy in fp32, summed over tokens and scaled (worker/parallel/loss_parallel.h).
#pragma once

#include "worker/parallel/loss_parallel.h"

namespace legoai::train {

// logits [batch, seq, vocab]: the whole vocabulary. For backward one fp32 [batch x seq, vocab] is kept, the log softmax.
parallel::LossFunction MakeCrossEntropy(double scale);

}  // namespace legoai::train
