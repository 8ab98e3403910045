#include "server/jobs/testing/example_submission.h"

namespace legoai::server::testing {

std::string ExampleConfig() {
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
      "hidden_act": "silu"})";
}

v1::CreateJobRequest ExampleSubmission(const std::string& request_id) {
  v1::CreateJobRequest request;
  request.set_parent("projects/default");
  request.set_request_id(request_id);
  v1::JobSpec* spec = request.mutable_spec();
  spec->mutable_model()->set_name("tiny");
  spec->mutable_model()->set_config_json(ExampleConfig());
  spec->mutable_dataset()->set_uri("/data/corpus.txt");
  v1::Training* training = spec->mutable_recipe()->mutable_training();
  training->set_global_batch_size(4);
  training->set_seq_len(16);
  training->set_steps(6);
  return request;
}

}  // namespace legoai::server::testing
