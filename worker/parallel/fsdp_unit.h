// The parameters that data parallelism gathers, reshards and reduces together: one block, the embedding, or the head. One class
// for the whole family: FSDP (shard > 1), HSDP (shard and replicate > 1), DDP (shard = 1), one process, each with or without
// mixed precision.
//
// Layout: dimension 0 of a parameter is cut into `shard` pieces of ceil(rows / shard) rows. A piece, padded to that many rows,
// takes Piece::elements of a packed buffer; the concatenation of all pieces in rank order is the tensor followed by padding. So
// an all-gather of the packed pieces gives [shard, packed], of which columns [offset, offset + elements) are the parameter.
// Between forward and backward a rank may hold more than its piece: consecutive rows of that, one part for each rank of a group
// of neighbours, over which an all-gather gives the same (FSDP2's reshard_after_forward by an integer).
//
// Buffers are released when the compute stream waits for the collective that used them, not whenever it happens to finish. Not
// thread-safe. A unit uses the comm::Runtime that was current at construction, and does not own its parameters, which must
// outlive it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <vector>

#include "worker/model/module.h"

namespace torch::autograd {
struct Node;
}

namespace legoai::parallel {

// Mixed precision (Micikevicius et al. 2018): parameters and compute in one type, gradients reduced in another, parameters held
// from step to step in a third. Activations follow the parameters: a bf16 embedding gives bf16 activations. The loss casts
// the logits to fp32, and gradients are fp32 once they are reduced.
struct Precision {
  c10::ScalarType param = c10::ScalarType::Float;   // Parameter::value, activations, and the gradients autograd makes
  c10::ScalarType reduce = c10::ScalarType::Float;  // gradients while they are summed over ranks and microbatches
  c10::ScalarType master = c10::ScalarType::Float;  // Parameter::master
};

// This rank's place in the data-parallel mesh, from the groups kDpShardCp, kDpReplicate and kReshard of the current runtime:
// ranks that share sequences hold shards like others.
struct DataParallelMesh {
  int64_t shard_group = 0, shard_size = 1, shard_rank = 0;
  int64_t replicate_group = 0, replicate_size = 1;
  int64_t reshard_group = 0, reshard_size = 1, reshard_rank = 0;  // of one rank: parameters are resharded over all of shard_group
  static DataParallelMesh Current();
};

class FsdpUnit {
 public:
  // Shards the parameters' specs over kDpShardCp. `path` names the unit in recordings. `values_stay`: values keep their memory.
  FsdpUnit(std::string path, std::vector<model::Parameter*> parameters, const DataParallelMesh& mesh, const Precision& precision,
           bool values_stay = false);

  // Creates every Parameter::value and, unless it is a view of its master, its storage, still empty. Masters must exist.
  void Allocate(c10::Device device);

  // Issues the all-gather on its own stream, unless the values are gathered or in flight.
  void StartGather();
  // Waits for it on the compute stream and fills the values. Starts it if necessary.
  void FinishGather();
  // Frees the values' memory, unless they stay.
  void Reshard();
  // The same before a backward that reads them: where there is a group for it, this rank keeps its part of them for that.
  void ReshardAfterForward();
  // The masters have changed: values that stay are gathered anew when they are asked for.
  void Expire();

  // A backward begins that computes gradients of these. Weight gradients of several backwards may be deferred.
  void ExpectGradients(const std::vector<model::Parameter*>& parameters);
  // A parameter's gradient of a backward is complete. True if it was the last that the unit expects.
  bool GradientReady(model::Parameter& parameter);
  // Names of parameters whose expected gradient is missing.
  std::vector<std::string> MissingGradients() const;
  // For a later reduction: value.grad() stays, or is accumulated in fp32 if values have another type.
  void KeepGradient(model::Parameter& parameter);
  // Sums the gradients over the mesh and adds those of earlier reductions of this step: first over the groups they are partial
  // over (on the compute stream), then kDpShardCp; with `last` over kDpReplicate too. Asynchronous.
  void StartReduce(bool last);
  // Waits on the compute stream for the reduction over kDpShardCp in flight, if any, and releases its input.
  void FinishShardReduce();
  // Waits for all reductions and sets Parameter::grad.
  void FinishReduce();
  void ReleaseGradients();

  const std::string& path() const { return path_; }
  const std::vector<model::Parameter*>& parameters() const { return parameters_; }
  bool Has(const model::Parameter& parameter) const { return IndexOf(parameter) < parameters_.size(); }
  // Separate storages of values, by parameter; undefined if shared with the master.
  const std::vector<at::Tensor>& flats() const { return flats_; }

 private:
  struct Piece {
    int64_t rows = 0;      // of the whole parameter
    int64_t row = 0;       // elements of one row
    int64_t elements = 0;  // of a padded piece
    int64_t offset = 0;    // in the packed buffer
  };
  enum class State { kSharded, kGathering, kGathered };

  bool ValuesApart() const;
  void PackMasters(const at::Tensor& packed);
  void PackGradient(size_t i, const at::Tensor& gradient, const at::Tensor& packed);
  at::Tensor TakeGradient(size_t i);
  void TakeGradientsAlone();
  void StartShardReduce(const at::Tensor& packed);
  void StartReplicateReduce(const at::Tensor& sum, int64_t after_event);

  std::string path_;
  std::vector<model::Parameter*> parameters_;
  DataParallelMesh mesh_;
  Precision precision_;
  bool values_stay_;
  std::vector<Piece> pieces_;
  int64_t packed_ = 0;  // elements of all pieces
  std::vector<std::shared_ptr<torch::autograd::Node>> nodes_;

  State state_ = State::kSharded;
  std::vector<at::Tensor> flats_;  // [shard * elements] in the parameters' type
  at::Tensor gathered_;            // [shard, packed] between start and finish
  at::Tensor part_;                // [shard / reshard, packed] from forward to backward

  size_t IndexOf(const model::Parameter& parameter) const;

  std::vector<int> missing_;      // gradients of the backwards under way, by parameter
  std::vector<at::Tensor> kept_;  // fp32 sums over earlier microbatches, by parameter; undefined where value.grad() is one
  at::Tensor reduced_;            // [packed] in the reduction's type: the sum so far
  at::Tensor reducing_;           // [packed]: what the reduce-scatter in flight writes
  bool last_ = false, replicate_in_flight_ = false;
  int64_t gather_fork_, gather_done_, reduce_fork_, reduce_done_, replicate_fork_, replicate_done_;  // events
};

}  // namespace legoai::parallel
