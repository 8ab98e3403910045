#include "core/hardware/testing/fake_gpus.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace legoai::sim::testing {
namespace {

void SetVariable(const std::string& name, const std::optional<std::string>& value) {
  if (value) {
    setenv(name.c_str(), value->c_str(), 1);
  } else {
    unsetenv(name.c_str());
  }
}

}  // namespace

std::string FakeH100(const std::string& uuid) {
  return "name=NVIDIA H100 80GB HBM3,uuid=" + uuid +
         ",memory=85520809984,reserved=577765376,power=700000,max_sm=1980,max_memory=2619,sm=345";
}

std::string FakeH200(const std::string& uuid) {
  return "name=NVIDIA H200,uuid=" + uuid +
         ",memory=150754820096,reserved=629145600,power=700000,max_sm=1980,max_memory=3201,sm=345";
}

FakeGpus::FakeGpus(const std::vector<std::string>& cards) {
  for (const char* name :
       {"LEGOAI_NVML", "LEGOAI_FAKE_NVML", "LEGOAI_FAKE_NVML_CHANGES", "LEGOAI_GPU_CLAIMS", "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER"}) {
    const char* value = std::getenv(name);
    before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
    unsetenv(name);
  }
  std::string text;
  for (const std::string& card : cards) text += card + ";";
  SetVariable("LEGOAI_FAKE_NVML", text);
  // Not of the process's number, which is one of many where each test has a name space of its own.
  const std::string now = std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
  SetVariable("LEGOAI_GPU_CLAIMS", now);
  const char* folder = std::getenv("TEST_TMPDIR");
  changes_ = std::string(folder == nullptr ? "/tmp" : folder) + "/fake_gpus_" + now;
  SetVariable("LEGOAI_FAKE_NVML_CHANGES", changes_);
  SetVariable("LEGOAI_NVML", std::filesystem::absolute("core/hardware/libfake_nvml.so").string());
}

FakeGpus::~FakeGpus() {
  for (const auto& [name, value] : before_) SetVariable(name, value);
  std::error_code none;
  std::filesystem::remove(changes_, none);
}

void FakeGpus::Change(const std::string& uuid, const std::string& fields) {
  // Whole lines alone are ever seen.
  std::ifstream before(changes_);
  const std::string text((std::istreambuf_iterator<char>(before)), {});
  std::ofstream(changes_ + ".new") << text << uuid << "," << fields << "\n";
  std::filesystem::rename(changes_ + ".new", changes_);
}

}  // namespace legoai::sim::testing
