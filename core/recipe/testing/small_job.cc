#include "core/recipe/testing/small_job.h"

#include "core/model/catalog.h"

namespace legoai::parallel::testing {

v1::Model SmallLlama() {
  return model::Llama(
      {.vocab = 256, .hidden = 96, .intermediate = 240, .layers = 6, .heads = 12, .kv_heads = 6, .positions = 64});
}

v1::Recipe Degrees(int64_t replicate, int64_t shard, int64_t tp, int64_t pp) {
  v1::Recipe recipe;
  recipe.mutable_parallelism()->set_data_parallel_replicate_degree(replicate);
  recipe.mutable_parallelism()->set_data_parallel_shard_degree(shard);
  recipe.mutable_parallelism()->set_tensor_parallel_degree(tp);
  recipe.mutable_parallelism()->set_pipeline_parallel_degree(pp);
  recipe.mutable_training()->set_local_batch_size(4);
  recipe.mutable_training()->set_seq_len(48);
  return recipe;
}

}  // namespace legoai::parallel::testing
