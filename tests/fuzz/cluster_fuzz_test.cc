// What says where a job is to run: files of clusters and of devices, and the short form on a command line. What is accepted keeps
// all that users of a Cluster rely on, can be sent to a server, and is read as the same when it is written again.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/hardware/catalog.h"
#include "proto/errors.h"
#include "proto/text.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

absl::Status ExpectTold(const absl::Status& status) {
  EXPECT_TRUE(IsUtf8(std::string(status.message()))) << status;
  EXPECT_TRUE(GetFieldViolation(status)) << status;
  return status;
}

template <typename Message>
std::string TextOf(const Message& message) {
  std::string text;
  EXPECT_TRUE(google::protobuf::TextFormat::PrintToString(message, &text));
  return text;
}

template <typename Message>
void ExpectSame(const absl::StatusOr<Message>& read, const Message& expected) {
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(TextOf(*read), TextOf(expected));
}

template <typename Message>
void ExpectCanBeSent(const Message& message) {
  Message sent;
  EXPECT_TRUE(sent.ParseFromString(message.SerializeAsString())) << TextOf(message);
  EXPECT_EQ(TextOf(sent), TextOf(message));
}

// By the words of core/hardware/catalog.h, not by its code.
void ExpectUsable(const v1::Cluster& cluster) {
  EXPECT_TRUE(sim::CheckCluster(cluster).ok()) << sim::CheckCluster(cluster);
  EXPECT_GT(cluster.device().memory_bytes(), 0);
  EXPECT_GT(cluster.device().memory_bandwidth_bytes_per_second(), 0);
  EXPECT_FALSE(cluster.device().peak_flops().empty());
  for (const auto& peak : cluster.device().peak_flops())
    EXPECT_TRUE(std::isfinite(peak.flops_per_second()) && sim::PeakFlops(cluster.device(), peak.dtype()) > 0);
  int64_t devices = 1;
  for (const v1::Tier& tier : cluster.tiers()) {
    ASSERT_GE(tier.group_size(), devices);
    EXPECT_EQ(tier.group_size() % devices, 0);
    EXPECT_TRUE(std::isfinite(tier.link().bandwidth_bytes_per_second()) && tier.link().bandwidth_bytes_per_second() > 0);
    devices = tier.group_size();
  }
  EXPECT_EQ(devices, cluster.devices_per_node() * cluster.nodes());
  const double ranks = sim::RanksPerCore(cluster);
  EXPECT_TRUE(ranks >= 1 && std::isfinite(ranks)) << ranks;
  ExpectCanBeSent(cluster);
  ExpectSame(sim::ParseCluster(WriteInput("again.txtpb", TextOf(cluster))), cluster);
}

absl::Status ParseClusterFile(const std::string& bytes) {
  const auto cluster = sim::ParseCluster(WriteInput("cluster.txtpb", bytes));
  if (!cluster.ok()) return ExpectTold(cluster.status());
  EXPECT_FALSE(cluster->name().empty());
  ExpectUsable(*cluster);
  return absl::OkStatus();
}

const char kDeviceWords[] =
    "{|}|[|]|:|;|,|#|\n|\"|'|\\|\\377|\\000|\xff|nan|inf|-inf|-1|0x10|1e400|type|kind|CUDA|CPU|memory_bytes|peak_flops|dtype|"
    "BFLOAT16|flops_per_second|efficiencies|op_class|fraction|operator|curve|least_seconds|node_link|cluster_link|nvlink4|"
    "loopback|measured_node_link|bandwidth_bytes_per_second|efficiency|latency_seconds|sources|";

TEST(Fuzz, ClusterFile) {
  Fuzz({"cluster_file", Words(absl::StrCat(kDeviceWords, "device|tiers|link|group_size|name|nodes|devices_per_node|host_cores|",
                                           "host_memory_bytes|price_per_gpu_hour|[type.googleapis.com/legoai.v1.Device]")),
        ParseClusterFile});
}

// A device may be read alone, and in the place of a type; then what it lacks is told.
absl::Status ParseDeviceFile(const std::string& bytes) {
  const std::string path = WriteInput("device.txtpb", bytes);
  const auto device = sim::LoadDevice(path);
  const auto cluster = sim::ParseCluster(path + ":2x2");
  if (!device.ok()) {
    EXPECT_FALSE(cluster.ok());
    return ExpectTold(device.status());
  }
  ExpectCanBeSent(*device);
  ExpectSame(sim::LoadDevice(WriteInput("again.txtpb", TextOf(*device))), *device);
  if (!cluster.ok()) return ExpectTold(cluster.status());
  EXPECT_EQ(cluster->name(), device->type() + ":2x2");
  v1::Device expected = *device;
  if (device->kind() == v1::CPU) expected.set_memory_bytes(cluster->host_memory_bytes() / 2);
  EXPECT_EQ(TextOf(cluster->device()), TextOf(expected));
  ExpectUsable(*cluster);
  return absl::OkStatus();
}

TEST(Fuzz, ClusterOfADeviceFile) { Fuzz({"cluster_device", Words(kDeviceWords), ParseDeviceFile}); }

absl::Status ParseShortForm(const std::string& text) {
  // Files are another test's.
  if (absl::StrContains(text, '/') || absl::StrContains(text, ".txtpb")) return absl::CancelledError("names a file");
  const auto cluster = sim::ParseCluster(text);
  if (!cluster.ok()) return ExpectTold(cluster.status());
  ExpectUsable(*cluster);
  ExpectSame(sim::ParseCluster(cluster->name()), *cluster);
  return absl::OkStatus();
}

TEST(Fuzz, ClusterShortForm) {
  Fuzz({"cluster_short",
        Words("h100-sxm-80|a100-sxm-40|gb200-nvl72|cpu|:|x|@|8|16|72|efa-p5|roce-400|loopback| |+|-|0x8|\xff|\n"),
        ParseShortForm});
}

}  // namespace
}  // namespace legoai::fuzz
