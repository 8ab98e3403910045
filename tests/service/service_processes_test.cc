#include "tests/service/service_processes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace legoai::service {
namespace {

// A scenario keeps the folder of a run that broke a rule: the next one must not go on with its store.
TEST(ServiceProcesses, OneAfterAnotherHasAFolderAndAStoreOfItsOwn) {
  std::string folder, store;
  {
    ServiceProcesses kept("one");
    kept.KeepFolder();
    folder = kept.Path("");
    store = kept.StoreUrl();
  }
  EXPECT_TRUE(std::filesystem::exists(folder));
  const ServiceProcesses next("one");
  EXPECT_NE(next.Path(""), folder);
  EXPECT_NE(next.StoreUrl(), store);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace legoai::service
