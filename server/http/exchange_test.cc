#include "server/http/exchange.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/errors.h"

namespace legoai::server {
namespace {

TEST(HttpError, CarriesTheFieldAsData) {
  const auto json = nlohmann::json::parse(ErrorJson(FieldError("spec.recipe.training.steps", "-1", "must be positive"), 400));
  EXPECT_EQ(json["error"]["code"], 400);
  EXPECT_EQ(json["error"]["status"], "INVALID_ARGUMENT");
  EXPECT_EQ(json["error"]["details"][0]["field"], "spec.recipe.training.steps");
  EXPECT_EQ(json["error"]["details"][0]["value"], "-1");
  EXPECT_EQ(json["error"]["details"][0]["remedy"], "must be positive");
}

TEST(HttpError, IsJsonWhateverTheMessageHolds) {
  const auto json = nlohmann::json::parse(ErrorJson(absl::NotFoundError("a \"job\" \xff\n"), 404));
  EXPECT_EQ(json["error"]["status"], "NOT_FOUND");
  EXPECT_TRUE(json["error"]["details"].empty());
}

// The table of google/rpc/code.proto, which says the HTTP status of every code.
TEST(HttpError, CodesAreThoseOfGoogleRpc) {
  const std::pair<int, int> expected[] = {{0, 200},  {1, 499},  {2, 500},  {3, 400},  {4, 504},  {5, 404},
                                          {6, 409},  {7, 403},  {8, 429},  {9, 400},  {10, 409}, {11, 400},
                                          {12, 501}, {13, 500}, {14, 503}, {15, 500}, {16, 401}};
  for (const auto& [code, http] : expected) EXPECT_EQ(HttpCode(static_cast<absl::StatusCode>(code)), http) << code;
}

}  // namespace
}  // namespace legoai::server
