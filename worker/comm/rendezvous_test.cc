#include "worker/comm/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace legoai::comm {
namespace {

using ::testing::HasSubstr;

class OneGpuEach : public ::testing::Test {
 protected:
  absl::Status Check(int64_t rank, const std::string& id) {
    return CheckOneGpuEach(store_, ranks_, rank, {id, "GPU 0, NVIDIA H100 80GB HBM3"});
  }
  void Other(int64_t rank, const std::string& id) {
    store_.set("gpu_of_rank/" + std::to_string(rank), std::vector<uint8_t>(id.begin(), id.end()));
  }
  c10d::HashStore store_;
  std::vector<int64_t> ranks_ = {4, 5, 7};
};

TEST_F(OneGpuEach, GpusOfTheirOwnPass) {
  Other(5, "GPU-b");
  Other(7, "GPU-c");
  EXPECT_EQ(Check(4, "GPU-a"), absl::OkStatus());
}

// As nccl_communicator.cc writes it where NCCL_HOSTID is set.
TEST_F(OneGpuEach, OneGpuPassesAsThatOfTwoHosts) {
  Other(5, "GPU-a of host b");
  Other(7, "GPU-a of host c");
  EXPECT_EQ(Check(4, "GPU-a of host a"), absl::OkStatus());
}

TEST_F(OneGpuEach, TwoRanksOnOneGpuAreNamedWithItAndTheRemedy) {
  Other(4, "GPU-a");
  Other(5, "GPU-b");
  const absl::Status refused = Check(7, "GPU-b");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* part :
       {"ranks 5 and 7", "GPU 0, NVIDIA H100 80GB HBM3", "GPU-b", "no more ranks than there are GPUs", "device cpu"})
    EXPECT_THAT(std::string(refused.message()), HasSubstr(part));
}

TEST_F(OneGpuEach, OthersWhoShareAreNamedToo) {
  Other(5, "GPU-b");
  Other(7, "GPU-b");
  const std::string message(Check(4, "GPU-a").message());
  EXPECT_THAT(message, HasSubstr("ranks 5 and 7"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("H100"))) << "only its own GPU's name is known to a rank";
}

TEST_F(OneGpuEach, ARankThatDoesNotComeIsNamed) {
  store_.setTimeout(std::chrono::milliseconds(20));
  Other(5, "GPU-b");
  const absl::Status late = Check(4, "GPU-a");
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("waiting for rank 7"));
}

}  // namespace
}  // namespace legoai::comm
