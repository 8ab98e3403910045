#include "worker/parallel/testing/tiny_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sin.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace legoai::parallel::testing {
namespace {

using at::Tensor;
using model::Layer;
using model::Module;
using model::Parameter;
using model::StepContext;

Tensor Normalize(const Tensor& x, const Tensor& weight) { return x * at::rsqrt((x * x).mean(-1, true) + 1e-5) * weight; }

// A stand-in for dropout: different for every sample, position and step, and the same whenever it is computed again.
Tensor Disturb(const Tensor& x, const StepContext& context) {
  if (!context.training) return x;
  const Tensor position = at::arange(x.size(1), x.options().dtype(at::kFloat));
  const Tensor phase = context.samples.to(at::kFloat).view({-1, 1, 1}) * 0.7 + position.view({1, -1, 1});
  return x * (at::sin(phase + context.rng.select(0, 1).to(at::kFloat)) * 0.5 + 1.0).to(x.scalar_type());
}

class Embedding : public Module {
 public:
  Embedding(const TinyOptions& o, StepContext* context) : context_(context) {
    weight = AddParameter("weight", {o.vocab, o.dim}, {});
  }
  Parameter* weight;

 protected:
  Tensor Forward(const Tensor& tokens) override { return Disturb(at::embedding(weight->value, tokens), *context_); }

 private:
  StepContext* context_;
};

class Block : public Module {
 public:
  Block(const TinyOptions& o, StepContext* context) : context_(context) {
    norm_ = AddParameter("norm", {o.dim}, {});
    up_ = AddParameter("up", {o.hidden, o.dim}, {});
    bias_ = AddParameter("bias", {o.hidden}, {});
    down_ = AddParameter("down", {o.dim, o.hidden}, {});
  }

 protected:
  Tensor Forward(const Tensor& x) override {
    const Tensor inner = at::gelu(at::linear(Normalize(x, norm_->value), up_->value, bias_->value));
    return x + Disturb(at::linear(inner, down_->value), *context_);
  }

 private:
  StepContext* context_;
  Parameter *norm_, *up_, *bias_, *down_;
};

class Head : public Module {
 public:
  Head(const TinyOptions& o, Parameter* tied) : weight_(tied) {
    norm_ = AddParameter("norm", {o.dim}, {});
    if (weight_ == nullptr) weight_ = AddParameter("weight", {o.vocab, o.dim}, {});
  }

 protected:
  Tensor Forward(const Tensor& x) override { return at::linear(Normalize(x, norm_->value), weight_->value); }

 private:
  Parameter *norm_, *weight_;
};

void Add(std::vector<Layer>* layers, Layer::Kind kind, int64_t index, const std::string& path, std::unique_ptr<Module> module) {
  module->SetPath(path);
  layers->push_back({kind, index, std::move(module)});
}

}  // namespace

std::unique_ptr<model::LanguageModel> MakeTinyModel(const TinyOptions& options) {
  v1::Model config;
  config.set_tie_word_embeddings(options.tied);
  auto context = std::make_shared<StepContext>();
  std::vector<Layer> layers;
  auto embedding = std::make_unique<Embedding>(options, context.get());
  Parameter* weight = embedding->weight;
  Add(&layers, Layer::Kind::kEmbedding, -1, "embedding", std::move(embedding));
  for (int64_t i = 0; i < options.blocks; ++i) {
    Add(&layers, Layer::Kind::kBlock, i, "blocks." + std::to_string(i), std::make_unique<Block>(options, context.get()));
  }
  Add(&layers, Layer::Kind::kHead, -1, "head", std::make_unique<Head>(options, options.tied ? weight : nullptr));
  return std::make_unique<model::LanguageModel>(std::move(config), std::move(layers), std::move(context));
}

void FillMasters(model::LanguageModel& model) {
  for (Parameter* p : model.Parameters()) {
    const ShardSpec& spec = p->spec;
    p->master = at::empty(spec.sizes, at::kFloat);
    const int64_t columns = spec.sizes.size() > 1 ? spec.sizes[1] : 1;
    const double phase = std::hash<std::string>()(spec.name) % 1000;
    for (int64_t i = 0; i < spec.Elements(); ++i) {
      const int64_t row = spec.offsets[0] + i / columns, column = i % columns;
      p->master.mutable_data_ptr<float>()[i] = std::sin(phase + 1.3 * row + 0.37 * column) * 0.6;
    }
  }
}

Tensor TinyLoss(const Tensor& logits, const Tensor& targets, double scale) {
  return at::gather(at::log_softmax(logits.to(at::kFloat), -1), -1, targets.unsqueeze(-1)).sum() * -scale;
}

}  // namespace legoai::parallel::testing
