#include "core/hardware/catalog.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>

#include "core/hardware/host.h"
#include "core/process/host_resources.h"
#include "proto/errors.h"
#include "proto/testing/assert_ok.h"

namespace legoai::sim {
namespace {

TEST(CatalogTest, EveryDeviceIsCompleteAndItsLinksExist) {
  ASSERT_EQ(ListDevices().size(), 11u);
  for (const auto& device : ListDevices()) {
    SCOPED_TRACE(device.type());
    EXPECT_GE(device.sources_size(), 3);
    EXPECT_FALSE(device.reserve_source().empty());
    EXPECT_GT(PeakFlops(device, v1::FLOAT32), 0);
    EXPECT_GT(PeakFlops(device, v1::BFLOAT16), 0);
    EXPECT_GT(device.kernel_launch_seconds(), 0);
    EXPECT_TRUE(FindLink(device.node_link()).ok());
    EXPECT_TRUE(FindLink(device.cluster_link()).ok());
    int classes = 0;
    for (const auto& efficiency : device.efficiencies()) {
      classes += efficiency.operator_().empty() && efficiency.dtype() == v1::DTYPE_UNSPECIFIED;
      EXPECT_GT(efficiency.fraction(), 0);
      EXPECT_LE(efficiency.fraction(), 1);
      EXPECT_FALSE(efficiency.source().empty());
      for (const auto& point : efficiency.curve()) EXPECT_LE(point.fraction(), 1) << efficiency.operator_();
    }
    EXPECT_EQ(classes, 6);
    ASSERT_OK_AND_ASSIGN(auto cluster, MakeCluster(device, 8, 2));
  }
  for (const auto& link : ListLinks()) EXPECT_FALSE(link.sources().empty()) << link.type();
}

// As the vendors print them: NVIDIA's data sheets of A100 (SXM), H100 (SXM, PCIe), H200 (SXM), HGX B200 and HGX B300 (an eighth
// of them) and GB200 NVL72 (a 72nd), AMD's of MI300X. Of the H100 with HBM2e there is none: TorchTitan's reports name its memory
// and bandwidth, the rest is the SXM card's. NVIDIA prints tensor cores' figures with sparsity, which is twice the dense ones.
TEST(CatalogTest, DataSheetNumbers) {
  struct Sheet {
    const char* type;
    double memory_gib;        // "GB" on the sheet; drivers keep up to 2 % of it for themselves
    double bf16_teraflops;    // dense
    double memory_gigabytes;  // per second
    double link_gigabytes;    // per second, both directions together: NVLink, or PCIe where there is no bridge
  };
  const std::vector<Sheet> sheets = {
      {"a100-sxm-40", 40, 312, 1555, 600},
      {"a100-sxm-80", 80, 312, 2039, 600},
      {"h100-sxm-80", 80, 1979.0 / 2, 3350, 900},
      {"h100-sxm-96", 96, 1979.0 / 2, 2400, 900},
      {"h100-pcie-80", 80, 1513.0 / 2, 2039, 128},
      {"h200", 141, 1979.0 / 2, 4800, 900},
      {"b200", 180, 36000.0 / 8 / 2, 8000, 1800},
      {"b300", 270, 36000.0 / 8 / 2, 64000.0 / 8, 14400.0 / 8},
      {"gb200-nvl72", 186, 360000.0 / 72 / 2, 576000.0 / 72, 1800},
      {"mi300x", 192, 1307.4, 5300, 7 * 128},
  };
  EXPECT_EQ(sheets.size() + 1, ListDevices().size()) << "all but the cpu";
  for (const Sheet& sheet : sheets) {
    SCOPED_TRACE(sheet.type);
    ASSERT_OK_AND_ASSIGN(const auto device, FindDevice(sheet.type));
    const double memory_gib = static_cast<double>(device.memory_bytes()) / (1 << 30);
    EXPECT_LE(memory_gib, sheet.memory_gib);
    EXPECT_GE(memory_gib, sheet.memory_gib * 0.98);
    EXPECT_NEAR(PeakFlops(device, v1::BFLOAT16) / 1e12, sheet.bf16_teraflops, 1);
    EXPECT_DOUBLE_EQ(device.memory_bandwidth_bytes_per_second() / 1e9, sheet.memory_gigabytes);
    EXPECT_DOUBLE_EQ(2 * FindLink(device.node_link())->bandwidth_bytes_per_second() / 1e9, sheet.link_gigabytes);
    EXPECT_EQ(device.allocation_rounding_bytes(), 512) << "of PyTorch's caching allocator";
  }
}

// Names and sizes as `nvidia-smi` lists them (in MiB), with what CUDA leaves of them where that is known from PyTorch.
TEST(CatalogTest, CardsAreFoundByNameAndMemory) {
  const auto type_of = [](const char* name, double mebibytes) {
    const auto device = FindDeviceOfGpu(name, static_cast<int64_t>(mebibytes * (1 << 20)));
    return device.ok() ? device->type() : "none: " + std::string(device.status().message());
  };
  EXPECT_EQ(type_of("NVIDIA H100 80GB HBM3", 81559), "h100-sxm-80");
  EXPECT_EQ(type_of("NVIDIA H100 80GB HBM3", 79.10 * 1024), "h100-sxm-80");
  EXPECT_EQ(type_of("NVIDIA H100 PCIe", 81559), "h100-pcie-80");
  EXPECT_EQ(type_of("NVIDIA H200", 143771), "h200");
  EXPECT_EQ(type_of("NVIDIA A100-SXM4-80GB", 81920), "a100-sxm-80");
  EXPECT_EQ(type_of("NVIDIA A100-SXM4-40GB", 40960), "a100-sxm-40");
  EXPECT_EQ(type_of("NVIDIA B200", 178.35 * 1024), "b200");
  EXPECT_EQ(type_of("NVIDIA B300 SXM6 AC", 275040), "b300");
  EXPECT_EQ(type_of("NVIDIA GB200", 189471), "gb200-nvl72");

  const int64_t h200 = FindDevice("h200")->memory_bytes();
  EXPECT_TRUE(FindDeviceOfGpu("NVIDIA H200", h200 / 100 * 98).ok());
  EXPECT_FALSE(FindDeviceOfGpu("NVIDIA H200", h200 / 100 * 96).ok()) << "another card, or a part of one";
  const auto unknown = GetFieldViolation(FindDeviceOfGpu("NVIDIA Q9", h200).status());
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->value(), "NVIDIA Q9");
  EXPECT_NE(unknown->remedy().find("--device_file"), std::string::npos);
  EXPECT_NE(unknown->remedy().find("NVIDIA H100 80GB HBM3 of 79.1 GiB"), std::string::npos) << unknown->remedy();
}

TEST(CatalogTest, NoTwoDevicesAnswerToOneCard) {
  for (const auto& device : ListDevices()) {
    for (const std::string& name : device.nvml_names())
      EXPECT_EQ(FindDeviceOfGpu(name, device.memory_bytes())->type(), device.type());
  }
}

TEST(CatalogTest, ShortForm) {
  ASSERT_OK_AND_ASSIGN(auto cluster, ParseCluster("h100-sxm-80:8x16"));
  EXPECT_EQ(cluster.devices_per_node() * cluster.nodes(), 128);
  ASSERT_EQ(cluster.tiers_size(), 2);
  EXPECT_EQ(cluster.tiers(0).group_size(), 8);
  EXPECT_EQ(cluster.tiers(0).link().type(), "nvlink4");
  EXPECT_EQ(cluster.tiers(1).group_size(), 128);
  EXPECT_EQ(ParseCluster("b200:4")->nodes(), 1);
}

// 72 GPUs that NVLink joins are one node, though a tray holds four of them.
TEST(CatalogTest, ARackIsANode) {
  ASSERT_OK_AND_ASSIGN(const auto racks, ParseCluster("gb200-nvl72:72x8"));
  ASSERT_EQ(racks.tiers_size(), 2);
  EXPECT_EQ(racks.tiers(0).group_size(), 72);
  EXPECT_EQ(racks.tiers(0).link().type(), "nvlink5-nvl72");
  EXPECT_NEAR(72 * 2 * racks.tiers(0).link().bandwidth_bytes_per_second(), 130e12, 0.5e12)
      << "as the data sheet has it of a rack";
  EXPECT_EQ(racks.tiers(1).group_size(), 576);
}

TEST(CatalogTest, AnotherLinkBetweenNodesIsNamedBehindTheSizes) {
  for (const char* link : {"efa-p5", "roce-400", "infiniband-xdr"}) {
    ASSERT_OK_AND_ASSIGN(const auto cluster, ParseCluster(std::string("h100-sxm-80:8x16@") + link));
    EXPECT_EQ(cluster.tiers(0).link().type(), "nvlink4");
    EXPECT_EQ(cluster.tiers(1).link().type(), link);
    EXPECT_EQ(cluster.device().cluster_link(), link);
    EXPECT_EQ(cluster.name(), std::string("h100-sxm-80:8x16@") + link);
  }
  // 3,200 Gbit/s of a p5.48xlarge, 400 Gbit/s and 800 Gbit/s an adapter.
  EXPECT_DOUBLE_EQ(FindLink("efa-p5")->bandwidth_bytes_per_second(), 3200e9 / 8 / 8);
  EXPECT_DOUBLE_EQ(FindLink("roce-400")->bandwidth_bytes_per_second(), 400e9 / 8);
  EXPECT_DOUBLE_EQ(FindLink("infiniband-xdr")->bandwidth_bytes_per_second(), 800e9 / 8);
  const auto unknown = GetFieldViolation(ParseCluster("h100-sxm-80:8x16@efa").status());
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->field(), "--cluster");
  EXPECT_EQ(unknown->value(), "efa");
  EXPECT_NE(unknown->remedy().find("efa-p5"), std::string::npos) << unknown->remedy();
  EXPECT_FALSE(ParseCluster("h100-sxm-80:8x16@").ok());
  EXPECT_FALSE(ParseCluster("h100-sxm-80@efa-p5").ok());
}

TEST(CatalogTest, WrongFormsNameFieldAndRemedy) {
  for (const char* text : {"h100-sxm-80", "h100-sxm-80:", "h100-sxm-80:8x", "h100-sxm-80:0x2", "h100-sxm-80:8x2x2", "h100:8x2",
                           "missing.txtpb", "h100-sxm-80:8x-1"}) {
    auto cluster = ParseCluster(text);
    ASSERT_FALSE(cluster.ok()) << text;
    auto violation = GetFieldViolation(cluster.status());
    ASSERT_TRUE(violation.has_value()) << text;
    EXPECT_EQ(violation->field(), "--cluster");
    EXPECT_FALSE(violation->remedy().empty());
  }
}

TEST(CatalogTest, AMistypedTypeNamesWhatMayBeMeant) {
  const auto meant = [](const absl::Status& status) {
    const auto fault = GetFieldViolation(status);
    const std::string text = fault ? fault->remedy() : "", begin = "did you mean ";
    const size_t from = text.find(begin) + begin.size();
    return text.substr(from, text.find('?') - from);
  };
  EXPECT_EQ(meant(ParseCluster("h100-sxm80:8x1").status()), "h100-sxm-80");
  EXPECT_EQ(meant(ParseCluster("A100-SXM-80:8x1").status()), "a100-sxm-80");
  EXPECT_EQ(meant(ParseCluster("cpux:1x1").status()), "cpu");
  // All that begin with it, not the one of few letters.
  EXPECT_EQ(meant(ParseCluster("h100:8x1").status()), "h100-pcie-80 or h100-sxm-80 or h100-sxm-96");
  EXPECT_EQ(meant(FindDevice("H2").status()), "h200");
  EXPECT_EQ(meant(FindLink("nvlink").status()).rfind("nvlink3 or nvlink4", 0), 0u);
}

TEST(CatalogTest, NodesLargerThanNvlinkJoinsAreRefused) {
  for (const char* text : {"h100-sxm-80:64", "h200:64x1", "h100-sxm-96:9x2", "b200:16", "a100-sxm-80:32", "b300:9", "mi300x:16",
                           "gb200-nvl72:73", "h100-sxm-80:16@efa-p5"}) {
    const auto violation = GetFieldViolation(ParseCluster(text).status());
    ASSERT_TRUE(violation) << text;
    EXPECT_EQ(violation->field(), "--cluster");
    EXPECT_EQ(violation->value(), text);
  }
  EXPECT_NE(GetFieldViolation(ParseCluster("h100-sxm-80:64").status())->remedy().find("h100-sxm-80:8x8"), std::string::npos);
  EXPECT_NE(GetFieldViolation(ParseCluster("gb200-nvl72:144").status())->remedy().find("gb200-nvl72:72x2"), std::string::npos);
  for (const char* text : {"h100-sxm-80:8x8", "a100-sxm-80:16", "h100-pcie-80:10", "cpu:64", "gb200-nvl72:36", "mi300x:8x2"}) {
    EXPECT_TRUE(ParseCluster(text).ok()) << text;
  }
}

TEST(CatalogTest, TimesThatRestOnAssumptionsSaySo) {
  v1::Device device = *FindDevice("h100-sxm-80");
  EXPECT_NE(AssumedEfficiencies(device).find("the catalog assumes for h100-sxm-80, not calibrated"), std::string::npos);
  for (auto& efficiency : *device.mutable_efficiencies()) efficiency.set_source("measured");
  EXPECT_EQ(AssumedEfficiencies(device), "");
  for (const auto& listed : ListDevices()) {
    const bool measured = listed.type() == "h200";
    EXPECT_EQ(AssumedEfficiencies(listed).find("not calibrated") == std::string::npos, measured) << listed.type();
  }
}

TEST(CatalogTest, CpuRanksShareTheHost) {
  int64_t cores = HostPhysicalCores();
  auto two = ParseCluster("cpu:2x1"), many = ParseCluster("cpu:" + std::to_string(4 * cores) + "x1");
  ASSERT_TRUE(two.ok() && many.ok());
  EXPECT_EQ(two->device().memory_bytes(), launch::HostMemoryBytes() / 2);
  EXPECT_EQ(many->device().memory_bytes(), launch::HostMemoryBytes() / (4 * cores));
  EXPECT_EQ(many->host_cores(), cores);
  EXPECT_EQ(RanksPerCore(*ParseCluster("cpu:1x1")), 1);
  EXPECT_EQ(RanksPerCore(*many), 4);
  EXPECT_EQ(RanksPerCore(*ParseCluster("h100-sxm-80:8x1")), 1);
  // A rank alone on its core: taking turns is the engine's.
  EXPECT_EQ(PeakFlops(many->device(), v1::FLOAT32), PeakFlops(*FindDevice("cpu"), v1::FLOAT32));
}

TEST(CatalogTest, LocalCpuReplacesTheCatalogs) {
  v1::Device mine = *FindDevice("cpu");
  mine.set_host_dispatch_seconds(42);
  EXPECT_EQ(ParseCluster("cpu:1x1", &mine)->device().host_dispatch_seconds(), 42);
  mine.mutable_measured_node_link()->set_type("loopback");
  mine.mutable_measured_node_link()->set_bandwidth_bytes_per_second(5e9);
  mine.mutable_measured_node_link()->set_efficiency(1);
  EXPECT_EQ(ParseCluster("cpu:1x1", &mine)->tiers(0).link().bandwidth_bytes_per_second(), 5e9);
  EXPECT_NE(ParseCluster("h200:1x1", &mine)->device().host_dispatch_seconds(), 42);
}

TEST(CatalogTest, TextFileSetsEveryNumber) {
  std::string path = testing::TempDir() + "/cluster.txtpb";
  ASSERT_OK_AND_ASSIGN(auto original, ParseCluster("a100-sxm-80:4x2"));
  original.set_name("");
  original.mutable_device()->set_reserve_bytes(7);
  std::ofstream(path) << original.DebugString();
  ASSERT_OK_AND_ASSIGN(auto read, ParseCluster(path));
  EXPECT_EQ(read.device().reserve_bytes(), 7);
  EXPECT_EQ(read.name(), path);
  original.mutable_tiers(1)->set_group_size(6);
  std::ofstream(path) << original.DebugString();
  auto broken = ParseCluster(path);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(GetFieldViolation(broken.status())->field(), "tiers.group_size");
}

// `lego calibrate` writes one.
TEST(CatalogTest, ADevicesFileStandsForItsType) {
  const std::string path = testing::TempDir() + "/my:h100.txtpb";
  v1::Device device = *FindDevice("h100-sxm-80");
  device.set_host_dispatch_seconds(42);
  std::ofstream(path) << "# measured\n" << device.DebugString();
  ASSERT_OK_AND_ASSIGN(const auto cluster, ParseCluster(path + ":8x2"));
  EXPECT_EQ(cluster.device().host_dispatch_seconds(), 42);
  EXPECT_EQ(cluster.devices_per_node(), 8);
  EXPECT_EQ(cluster.nodes(), 2);
  EXPECT_EQ(cluster.name(), "h100-sxm-80:8x2");
  EXPECT_EQ(ParseCluster(path + ":4")->nodes(), 1);
  EXPECT_EQ(ParseCluster(path + ":8x2@roce-400")->tiers(1).link().type(), "roce-400");
  for (const std::string& wrong :
       std::vector<std::string>{path + ":64x1", path + ":0x1", path + ":", path, path + "x:8x1", "/none.txtpb:8x1"}) {
    const auto violation = GetFieldViolation(ParseCluster(wrong).status());
    ASSERT_TRUE(violation) << wrong;
    EXPECT_EQ(violation->field(), "--cluster") << wrong;
  }
}

// Text format takes any bytes; messages and terminals do not.
TEST(CatalogTest, TextThatNobodyCanBeSentIsRefused) {
  const std::string path = testing::TempDir() + "/text.txtpb";
  v1::Device device = *FindDevice("h100-sxm-80");
  device.clear_type();
  const auto refused = [&](const std::string& line) {
    std::ofstream(path) << device.DebugString() << line;
    const auto alone = GetFieldViolation(LoadDevice(path).status());
    const auto typed = GetFieldViolation(ParseCluster(path + ":8x2").status());
    EXPECT_EQ(alone.has_value(), typed.has_value()) << line;
    return alone ? alone->remedy().substr(0, alone->remedy().find(' ')) : "accepted";
  };
  EXPECT_EQ(refused("type: 'S\\303\\251bastien'"), "accepted");
  EXPECT_EQ(refused("type: '\\377'"), "type");
  EXPECT_EQ(refused("type: '\xff'"), "type");
  EXPECT_EQ(refused("type: '\\033[2J'"), "type");
  EXPECT_EQ(refused("efficiencies { fraction: 1 curve { } source: 'a\\n' }"), "efficiencies[6].source");
}

TEST(CatalogTest, ACalibrationIsReadOrRefusedByName) {
  const std::string path = testing::TempDir() + "/calibration.txtpb";
  std::ofstream(path) << "provenance { card: \"X\" } operators { operator: \"aten::mm\" shape { key: \"m\" value: 4 } }";
  ASSERT_OK_AND_ASSIGN(const auto calibration, LoadCalibration(path));
  EXPECT_EQ(calibration.operators(0).shape().at("m"), 4);
  std::ofstream(path) << "provenance { cart: \"X\" }";
  const auto violation = GetFieldViolation(LoadCalibration(path).status());
  ASSERT_TRUE(violation);
  EXPECT_NE(violation->remedy().find("line 1"), std::string::npos) << violation->remedy();
  EXPECT_EQ(LoadCalibration("/none.txtpb").status().code(), absl::StatusCode::kNotFound);
}

// What is not finite would never end in the simulator, and products must fit.
TEST(CatalogTest, EveryNumberOfAClusterIsChecked) {
  const v1::Cluster good = ParseCluster("h100-sxm-80:8x2").value();
  const auto refused = [&](const std::function<void(v1::Cluster&)>& change) -> std::string {
    v1::Cluster cluster = good;
    change(cluster);
    const auto violation = GetFieldViolation(CheckCluster(cluster));
    return violation ? violation->field() : "accepted";
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refused([](auto&) {}), "accepted");
  EXPECT_EQ(refused([](auto& c) { c.set_devices_per_node(int64_t{1} << 40), c.set_nodes(int64_t{1} << 40); }),
            "devices_per_node");
  EXPECT_EQ(refused([](auto& c) { c.set_nodes(int64_t{1} << 40); }), "nodes");
  EXPECT_EQ(refused([](auto& c) { c.set_host_cores(-1); }), "host_cores");
  EXPECT_EQ(refused([](auto& c) { c.mutable_device()->clear_kind(); }), "device.kind");
  EXPECT_EQ(refused([](auto& c) { c.mutable_device()->set_reserve_bytes(-1); }), "device.reserve_bytes");
  EXPECT_EQ(refused([](auto& c) { c.mutable_device()->set_memory_bytes(INT64_MAX); }), "device.memory_bytes");
  for (const double wrong : {nan, infinity, -1.0}) {
    SCOPED_TRACE(wrong);
    EXPECT_EQ(refused([=](auto& c) { c.mutable_device()->set_memory_bandwidth_bytes_per_second(wrong); }),
              "device.memory_bandwidth_bytes_per_second");
    EXPECT_EQ(refused([=](auto& c) { c.mutable_device()->mutable_peak_flops(1)->set_flops_per_second(wrong); }),
              "device.peak_flops.flops_per_second");
    EXPECT_EQ(refused([=](auto& c) { c.mutable_device()->mutable_efficiencies(0)->set_fraction(wrong); }),
              "device.efficiencies.fraction");
    EXPECT_EQ(refused([=](auto& c) { c.mutable_device()->set_kernel_launch_seconds(wrong); }), "device.kernel_launch_seconds");
    EXPECT_EQ(refused([=](auto& c) { c.mutable_device()->set_host_dispatch_seconds(wrong); }), "device.host_dispatch_seconds");
    EXPECT_EQ(refused([=](auto& c) { c.mutable_device()->set_communication_compute_share(wrong); }),
              "device.communication_compute_share");
    EXPECT_EQ(refused([=](auto& c) { c.mutable_device()->set_measured_while_busy(wrong); }), "device.measured_while_busy");
    EXPECT_EQ(refused([=](auto& c) { c.mutable_tiers(1)->mutable_link()->set_latency_seconds(wrong); }),
              "tiers.link.latency_seconds");
    EXPECT_EQ(refused([=](auto& c) { c.mutable_tiers(0)->mutable_link()->set_bandwidth_bytes_per_second(wrong); }),
              "tiers.link.bandwidth_bytes_per_second");
  }
}

// 16 devices, a million tokens in ten seconds: 10,000 seconds for a billion, on each of them.
TEST(RunningCost, CountsDevicesHoursAndMoney) {
  v1::Cluster cluster;
  cluster.set_devices_per_node(8);
  cluster.set_nodes(2);
  v1::RunningCost cost = RunningCostOf(cluster, 1e6, 10);
  EXPECT_DOUBLE_EQ(cost.tokens_per_day(), 8.64e9);
  EXPECT_DOUBLE_EQ(cost.gpu_hours_per_billion_tokens(), 16 * 10000 / 3600.0);
  EXPECT_EQ(cost.price_per_billion_tokens(), 0) << "which is not known";
  cluster.set_price_per_gpu_hour(3.6);
  EXPECT_DOUBLE_EQ(RunningCostOf(cluster, 1e6, 10).price_per_billion_tokens(), 160);
}

TEST(RunningCost, OfNoStepThereIsNone) {
  v1::Cluster cluster;
  cluster.set_devices_per_node(8);
  cluster.set_nodes(1);
  EXPECT_EQ(RunningCostOf(cluster, 1e6, 0).ByteSizeLong(), 0u);
  EXPECT_EQ(RunningCostOf(cluster, 0, 1).ByteSizeLong(), 0u);
}

}  // namespace
}  // namespace legoai::sim
