// A client of verilocc.v1 in C++: allocates the registers of one phase of a machine IR file, audits the result, and
// writes it if all of it is proved.
//
//   client ADDRESS FILE.mir --target=gfx942 --phase=sgpr|vgpr [--out=FILE] [--ca=CA.pem]       token: $VERILOCC_TOKEN
//
// Exit code: 0 proved, 1 refuted, 2 bad input or refused for good, 3 not decided, or no server.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "status.pb.h"
#include "verilocc/v1/allocation_service.grpc.pb.h"
#include "verilocc/v1/audit_service.grpc.pb.h"

namespace v1 = verilocc::v1;
using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::system_clock;

namespace {

constexpr Seconds kPatience{60};  // for one call, repeats included
constexpr int kTries = 3;

enum Exit { kProved = 0, kRefuted = 1, kBadInput = 2, kUnknown = 3 };

struct Error {
  std::string reason;  // stable: ErrorInfo.reason
  double retry = -1;   // seconds after which to try again; below 0: no use
};

Error ErrorOf(const grpc::Status& status) {
  Error error;
  google::rpc::Status details;
  details.ParseFromString(status.error_details());
  for (const auto& packed : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (packed.UnpackTo(&info)) error.reason = info.reason();
    if (packed.UnpackTo(&retry)) error.retry = retry.retry_delay().seconds() + retry.retry_delay().nanos() / 1e9;
  }
  return error;
}

// Repeats what may be repeated, until its time is over: calls have no side effects.
template <typename Request, typename Answer, typename Method>
grpc::Status Call(Method method, const Request& request, Answer* answer, const std::string& token) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(kPatience);
  std::mt19937 chance{std::random_device{}()};
  for (int tried = 1;; ++tried) {
    grpc::ClientContext context;
    context.set_deadline(end);
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    const grpc::Status status = method(&context, request, answer);
    if (status.ok()) return status;
    double wait = ErrorOf(status).retry;
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE && tried < kTries) {
      const double backoff = 0.1 * (1 << tried) * std::uniform_real_distribution<>(0.5, 1.5)(chance);
      wait = std::max(wait, backoff);
    } else if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED || wait < 0) {
      return status;
    }
    if (Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds{wait}) >= end) return status;
    std::this_thread::sleep_for(Seconds{wait});
  }
}

int Failed(const grpc::Status& status) {
  const Error error = ErrorOf(status);
  std::cerr << "error: " << (error.reason.empty() ? "code " + std::to_string(status.error_code()) : error.reason)
            << ": " << status.error_message() << "\n";
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return kBadInput;
    default:
      return kUnknown;
  }
}

// An outcome that this client does not know is not PROVED.
int ExitOf(v1::Outcome outcome) {
  switch (outcome) {
    case v1::OUTCOME_PROVED: return kProved;
    case v1::OUTCOME_REFUTED: return kRefuted;
    case v1::OUTCOME_INVALID: return kBadInput;
    default: return kUnknown;
  }
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::cerr << "error: " << path << " cannot be read\n";
    std::exit(kBadInput);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

int Usage() {
  std::cerr << "usage: client ADDRESS FILE.mir --target=CPU --phase=sgpr|vgpr [--out=FILE] [--ca=CA.pem]\n";
  return kBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int n = 3; n < argc; ++n) {
    const std::string word = argv[n];
    const auto equals = word.find('=');
    if (word.rfind("--", 0) != 0 || equals == std::string::npos) return Usage();
    options[word.substr(2, equals - 2)] = word.substr(equals + 1);
  }
  static const std::map<std::string, v1::Phase> kPhases = {{"sgpr", v1::PHASE_SGPR}, {"vgpr", v1::PHASE_VGPR}};
  if (argc < 3 || kPhases.count(options["phase"]) == 0) return Usage();
  const std::string path = argv[2], text = ReadFile(path);
  const char* given = std::getenv("VERILOCC_TOKEN");
  const std::string token = given ? given : "";

  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);  // gRPC takes 4 MiB of its own accord
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!options["ca"].empty()) {
    grpc::SslCredentialsOptions tls;
    tls.pem_root_certs = ReadFile(options["ca"]);
    credentials = grpc::SslCredentials(tls);
  }
  const auto channel = grpc::CreateCustomChannel(argv[1], credentials, arguments);
  const auto allocator = v1::AllocationService::NewStub(channel);
  const auto auditor = v1::AuditService::NewStub(channel);

  v1::AllocateRequest request;
  request.mutable_mir()->set_text(text);
  request.mutable_mir()->set_target(options["target"]);
  request.mutable_mir()->set_phase(kPhases.at(options["phase"]));
  request.mutable_mir()->set_name(path);
  request.set_return_mir(true);
  v1::AllocateResponse answer;
  auto allocate = [&](auto... all) { return allocator->Allocate(all...); };
  if (auto status = Call(allocate, request, &answer, token); !status.ok()) return Failed(status);
  int exit_code = answer.functions_size() == 0 ? kUnknown : kProved;
  for (const auto& function : answer.functions()) {
    std::cout << function.function() << ": " << v1::Outcome_Name(function.outcome());
    if (function.outcome() == v1::OUTCOME_PROVED) {
      std::cout << ": " << function.assignments_size() << " registers assigned by " << function.allocator() << "\n";
    } else {
      std::cout << ": " << function.reason() << "\n";
      if (exit_code != kRefuted) exit_code = ExitOf(function.outcome());
    }
  }
  if (exit_code != kProved) return exit_code;

  v1::AuditRequest both;
  both.set_before(text);
  both.set_after(answer.mir());
  both.set_target(options["target"]);
  v1::AuditResponse verdict;
  auto audit = [&](auto... all) { return auditor->Audit(all...); };
  if (auto status = Call(audit, both, &verdict, token); !status.ok()) return Failed(status);
  std::cout << "audit: " << v1::Outcome_Name(verdict.outcome()) << "\n";
  if (verdict.outcome() != v1::OUTCOME_PROVED) return ExitOf(verdict.outcome());
  if (!options["out"].empty() && !(std::ofstream(options["out"], std::ios::binary) << answer.mir()).flush()) {
    std::cerr << "error: " << options["out"] << " cannot be written\n";
    return kBadInput;
  }
  return kProved;
}
