// Gives this process, and those that it starts, GPUs of the fake NVML (fake_nvml.cc). Not thread-safe: it sets the environment.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace legoai::sim::testing {

// Cards as fake_nvml.cc reads them. `uuid` is all of it: "GPU-1".
std::string FakeH100(const std::string& uuid);
std::string FakeH200(const std::string& uuid);

// For as long as it lives; then the environment is as before. CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are not set at first.
// Who has claimed cards of another test has not claimed these (worker/launch/gpus.h), although they are called alike.
class FakeGpus {
 public:
  explicit FakeGpus(const std::vector<std::string>& cards);
  ~FakeGpus();
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;

  // From now on, in processes that run too: `fields` as in fake_nvml.cc, without the UUID ("ecc=1", "xid=79"). They add up.
  void Change(const std::string& uuid, const std::string& fields);

 private:
  std::string changes_;  // the file
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace legoai::sim::testing
