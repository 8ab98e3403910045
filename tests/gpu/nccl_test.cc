// NCCL with one rank: every collective gives what the communicator of a group of one gives on the CPU.
#include <ATen/ATen.h>

#include <functional>
#include <memory>

#include "tests/gpu/gpu_test.h"
#include "worker/comm/communicator.h"

namespace legoai::gpu {
namespace {

using at::Tensor;
using comm::Communicator;
using comm::ReduceOp;

class Nccl : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (plugin_ == nullptr) return;
    auto factory = plugin_->make_nccl_factory({}).value();
    nccl_ = factory({mesh::Dim::kDpShard, {0, 1, 1}}, 0, 0).value();
  }

  using Call = std::function<absl::Status(Communicator&, void* out, const void* in, int64_t count)>;
  // `call` on equal tensors of both devices.
  void ExpectAlike(const char* what, at::ScalarType dtype, const Call& call) {
    for (const int64_t count : {1, 5, 4096, 1 << 20}) {
      const Tensor in = (at::arange(count, at::kLong) % 251 - 100).to(dtype), out = at::full({count}, 3, dtype);
      const Tensor device_in = in.to(at::kCUDA), device_out = out.to(at::kCUDA);
      const absl::Status local = call(*local_, out.mutable_data_ptr(), in.const_data_ptr(), count);
      const absl::Status nccl = call(*nccl_, device_out.mutable_data_ptr(), device_in.const_data_ptr(), count);
      EXPECT_TRUE(local.ok()) << what << ": " << local;
      ASSERT_TRUE(nccl.ok()) << what << " " << dtype << ": " << nccl;
      EXPECT_TRUE(at::equal(device_out.cpu(), out)) << what << " " << dtype << ", " << count << " elements";
      EXPECT_TRUE(at::equal(device_in.cpu(), in)) << what << " " << dtype << " changed what it reads";
      EXPECT_TRUE(nccl_->Health().ok());
    }
  }

  std::unique_ptr<Communicator> nccl_, local_ = comm::MakeLocalCommunicator();
};

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong};

TEST_F(Nccl, SaysWhoItIs) {
  EXPECT_EQ(nccl_->rank(), 0);
  EXPECT_EQ(nccl_->size(), 1);
}

TEST_F(Nccl, CollectivesThatReduce) {
  for (const at::ScalarType dtype : kTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      ExpectAlike("reduce_scatter", dtype, [&](Communicator& c, void* out, const void* in, int64_t count) {
        return c.ReduceScatter(out, in, count, dtype, op);
      });
      ExpectAlike("all_reduce", dtype,
                  [&](Communicator& c, void* out, const void*, int64_t count) { return c.AllReduce(out, count, dtype, op); });
    }
  }
}

TEST_F(Nccl, CollectivesThatMove) {
  for (const at::ScalarType dtype : kTypes) {
    const int64_t size = c10::elementSize(dtype);
    ExpectAlike("all_gather", dtype,
                [&](Communicator& c, void* out, const void* in, int64_t count) { return c.AllGather(out, in, count * size); });
    ExpectAlike("all_to_all", dtype,
                [&](Communicator& c, void* out, const void* in, int64_t count) { return c.AllToAll(out, in, count * size); });
    ExpectAlike("broadcast", dtype,
                [&](Communicator& c, void* out, const void*, int64_t count) { return c.Broadcast(out, count * size, 0); });
  }
}

// As the communicator of a group of one refuses them.
TEST_F(Nccl, ARankHasNoMessageForItself) {
  const Tensor tensor = at::zeros({4}, at::kCUDA);
  EXPECT_EQ(nccl_->Send(tensor.const_data_ptr(), 16, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(nccl_->Recv(tensor.mutable_data_ptr(), 16, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(local_->Send(tensor.const_data_ptr(), 16, 0).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Nccl, TypesThatCannotBeReducedAreNamed) {
  const Tensor tensor = at::zeros({4}, at::TensorOptions().dtype(at::kBool).device(at::kCUDA));
  const absl::Status refused = nccl_->AllReduce(tensor.mutable_data_ptr(), 4, at::kBool, ReduceOp::kSum);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(refused.message().find("Bool"), std::string::npos) << refused;
}

TEST_F(Nccl, WhatIsGivenUpRefusesAndEnds) {
  const Tensor tensor = at::ones({1 << 20}, at::kCUDA);
  ASSERT_TRUE(nccl_->AllReduce(tensor.mutable_data_ptr(), tensor.numel(), at::kFloat, ReduceOp::kSum).ok());
  nccl_->Abort();
  EXPECT_EQ(nccl_->Health().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(nccl_->Broadcast(tensor.mutable_data_ptr(), 16, 0).code(), absl::StatusCode::kUnavailable);
  nccl_->Abort();
  nccl_.reset();
  EXPECT_EQ(tensor.sum().item<float>(), 1 << 20) << "the device goes on";
}

}  // namespace
}  // namespace legoai::gpu
