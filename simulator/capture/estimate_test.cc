#include "simulator/capture/estimate.h"

#include <gtest/gtest.h>

#include "simulator/hardware/catalog.h"
#include "worker/parallel/recipe.h"

namespace legoai::sim {
namespace {

constexpr int64_t kSeqLen = 64;

v1::SimRequest Request(const char* cluster, int64_t shard, int64_t tp, int64_t pp, v1::ActivationCheckpointMode mode) {
  v1::SimRequest request;
  v1::Model* model = request.mutable_model();
  model->set_architecture(v1::LLAMA);
  model->set_hidden_size(32);
  model->set_num_attention_heads(4);
  model->set_num_key_value_heads(2);
  model->set_head_dim(8);
  model->set_intermediate_size(64);
  model->set_num_hidden_layers(4);
  model->set_vocab_size(128);
  model->set_max_position_embeddings(kSeqLen);
  model->set_norm_eps(1e-5);
  model->set_rope_theta(10000);
  model->set_initializer_range(0.02);
  *request.mutable_cluster() = *ParseCluster(cluster);
  v1::Recipe* recipe = request.mutable_recipe();
  *recipe = parallel::DefaultRecipe();
  recipe->mutable_training()->set_local_batch_size(4);
  recipe->mutable_training()->set_seq_len(kSeqLen);
  recipe->mutable_parallelism()->set_data_parallel_shard_degree(shard);
  recipe->mutable_parallelism()->set_tensor_parallel_degree(tp);
  recipe->mutable_parallelism()->set_pipeline_parallel_degree(pp);
  recipe->mutable_activation_checkpoint()->set_mode(mode);
  request.set_cost_mode(v1::COST_ROOFLINE);
  return request;
}

// MFU and HFU count by one convention: they differ by what is recomputed, in every layout. Of a block's forward full
// checkpointing repeats all but, at most, its last product, whose result backward does not need.
TEST(EstimateRecipe, HfuIsMfuAndWhatIsRecomputed) {
  struct Layout {
    const char* cluster;
    int64_t shard, tp, pp;
  };
  for (const Layout& l : {Layout{"h100-sxm-80:1x1", 1, 1, 1},
                          {"h100-sxm-80:4x1", 4, 1, 1},
                          {"h100-sxm-80:2x1", 1, 2, 1},
                          {"h100-sxm-80:2x1", 1, 1, 2},
                          {"cpu:8x1", 2, 2, 2}}) {
    SCOPED_TRACE(testing::Message() << l.cluster << " tp " << l.tp << " pp " << l.pp);
    const auto plain = EstimateRecipe(Request(l.cluster, l.shard, l.tp, l.pp, v1::AC_NONE));
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_GT(plain->mfu(), 0);
    EXPECT_EQ(plain->hfu(), plain->mfu());
    const auto full = EstimateRecipe(Request(l.cluster, l.shard, l.tp, l.pp, v1::AC_FULL));
    ASSERT_TRUE(full.ok()) << full.status();
    constexpr double kHidden = 32, kInner = 64, kKeys = 16, kLayers = 4;
    const double last = 2 * kHidden * kInner;
    const double block = 2 * (2 * kHidden * kHidden + 2 * kHidden * kKeys) + 3 * last + 4 * kHidden * kSeqLen;
    const double recomputed = (full->hfu() / full->mfu() - 1) * full->model_flops_per_token();
    EXPECT_LE(recomputed, kLayers * block * (1 + 1e-9));
    EXPECT_GE(recomputed, kLayers * (block - last) * (1 - 1e-9));
  }
}

}  // namespace
}  // namespace legoai::sim
