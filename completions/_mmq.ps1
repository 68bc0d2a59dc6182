
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'mmq' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'mmq'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'mmq' {
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('stat', 'stat', [CompletionResultType]::ParameterValue, 'Figures of queues: how many messages wait, how old, who has it')
            [CompletionResult]::new('cat', 'cat', [CompletionResultType]::ParameterValue, 'Show the messages that wait for a consumer, the oldest first, and leave them there')
            [CompletionResult]::new('peek', 'peek', [CompletionResultType]::ParameterValue, 'Show the messages that wait for a consumer, the oldest first, and leave them there')
            [CompletionResult]::new('tail', 'tail', [CompletionResultType]::ParameterValue, 'Show the newest messages, and follow')
            [CompletionResult]::new('gaps', 'gaps', [CompletionResultType]::ParameterValue, 'Show which messages will never come, and why')
            [CompletionResult]::new('verify', 'verify', [CompletionResultType]::ParameterValue, 'Check every header, checksum, number, seal and place, and say what is damaged')
            [CompletionResult]::new('put', 'put', [CompletionResultType]::ParameterValue, 'Put messages in, from standard input or files; status 0: a power cut takes none of them')
            [CompletionResult]::new('take', 'take', [CompletionResultType]::ParameterValue, 'Remove messages and print them, the oldest first')
            [CompletionResult]::new('each', 'each', [CompletionResultType]::ParameterValue, 'Run a command for each message, until it succeeds')
            [CompletionResult]::new('redrive', 'redrive', [CompletionResultType]::ParameterValue, 'Put dead letters back into their queue')
            [CompletionResult]::new('forward', 'forward', [CompletionResultType]::ParameterValue, 'Send messages on to NATS JetStream or a Redis stream, each once')
            [CompletionResult]::new('consumers', 'consumers', [CompletionResultType]::ParameterValue, 'Consumers: each has a place of its own and sees every message')
            [CompletionResult]::new('purge', 'purge', [CompletionResultType]::ParameterValue, 'Give up messages: every consumer goes on behind them')
            [CompletionResult]::new('copy', 'copy', [CompletionResultType]::ParameterValue, 'Make a second queue with the same messages, numbers and consumers')
            [CompletionResult]::new('dump', 'dump', [CompletionResultType]::ParameterValue, 'Print all of a queue as JSON lines, for `mmq load`')
            [CompletionResult]::new('load', 'load', [CompletionResultType]::ParameterValue, 'Make a queue out of what `mmq dump` printed')
            [CompletionResult]::new('salvage', 'salvage', [CompletionResultType]::ParameterValue, 'Get messages out of segment files: damaged, set aside, drained, or without their queue')
            [CompletionResult]::new('import', 'import', [CompletionResultType]::ParameterValue, 'Make a queue of a directory of bigqueue or pqueue, which is only read')
            [CompletionResult]::new('spool', 'spool', [CompletionResultType]::ParameterValue, 'Send a file through a queue, line by line, and check that it comes out unchanged')
            [CompletionResult]::new('bench', 'bench', [CompletionResultType]::ParameterValue, 'Measure what the disk of a directory gives, in a queue that is removed at the end')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print what a shell needs to complete this tool''s command line')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Print this tool''s page of the manual, or write those of all commands into a directory')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mmq;stat' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours; auto: on a terminal, unless NO_COLOR is set or TERM is dumb [default: auto]')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Write it there, at once as a whole')
            [CompletionResult]::new('--label', '--label', [CompletionResultType]::ParameterName, 'The label `queue`, for each queue one [default: its path]')
            [CompletionResult]::new('--watch', '--watch', [CompletionResultType]::ParameterName, 'Show it again and again [default: each second]')
            [CompletionResult]::new('--max-lag', '--max-lag', [CompletionResultType]::ParameterName, 'Messages that may wait for a consumer')
            [CompletionResult]::new('--max-age', '--max-age', [CompletionResultType]::ParameterName, 'How old the oldest of them may be')
            [CompletionResult]::new('--max-bytes', '--max-bytes', [CompletionResultType]::ParameterName, 'Bytes of the segments that they take')
            [CompletionResult]::new('--consumer', '--consumer', [CompletionResultType]::ParameterName, 'The consumer [default: each of them]')
            [CompletionResult]::new('--exact', '--exact', [CompletionResultType]::ParameterName, 'Sizes in bytes')
            [CompletionResult]::new('--prometheus', '--prometheus', [CompletionResultType]::ParameterName, 'In the text format of Prometheus')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;cat' {
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'At most so many')
            [CompletionResult]::new('--messages', '--messages', [CompletionResultType]::ParameterName, 'At most so many')
            [CompletionResult]::new('--consumer', '--consumer', [CompletionResultType]::ParameterName, 'The consumer whose messages they are [default: the queue''s own, which has no name]')
            [CompletionResult]::new('--from', '--from', [CompletionResultType]::ParameterName, 'Begin there, also before the consumer''s place')
            [CompletionResult]::new('--to', '--to', [CompletionResultType]::ParameterName, 'End before that message')
            [CompletionResult]::new('--grep', '--grep', [CompletionResultType]::ParameterName, 'Only messages that hold these bytes')
            [CompletionResult]::new('--head', '--head', [CompletionResultType]::ParameterName, 'Only so many first bytes of each')
            [CompletionResult]::new('--framing', '--framing', [CompletionResultType]::ParameterName, 'Where a message ends [default: line]')
            [CompletionResult]::new('--decode', '--decode', [CompletionResultType]::ParameterName, 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once')
            [CompletionResult]::new('--all', '--all', [CompletionResultType]::ParameterName, 'Everything that is held, whoever has taken it')
            [CompletionResult]::new('-c', '-c', [CompletionResultType]::ParameterName, 'Only say how many they are')
            [CompletionResult]::new('--count', '--count', [CompletionResultType]::ParameterName, 'Only say how many they are')
            [CompletionResult]::new('-0', '-0', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--null', '--null', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'End with status 6 before the first message that holds its own delimiter')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mmq;peek' {
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'At most so many')
            [CompletionResult]::new('--messages', '--messages', [CompletionResultType]::ParameterName, 'At most so many')
            [CompletionResult]::new('--consumer', '--consumer', [CompletionResultType]::ParameterName, 'The consumer whose messages they are [default: the queue''s own, which has no name]')
            [CompletionResult]::new('--from', '--from', [CompletionResultType]::ParameterName, 'Begin there, also before the consumer''s place')
            [CompletionResult]::new('--to', '--to', [CompletionResultType]::ParameterName, 'End before that message')
            [CompletionResult]::new('--grep', '--grep', [CompletionResultType]::ParameterName, 'Only messages that hold these bytes')
            [CompletionResult]::new('--head', '--head', [CompletionResultType]::ParameterName, 'Only so many first bytes of each')
            [CompletionResult]::new('--framing', '--framing', [CompletionResultType]::ParameterName, 'Where a message ends [default: line]')
            [CompletionResult]::new('--decode', '--decode', [CompletionResultType]::ParameterName, 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once')
            [CompletionResult]::new('--all', '--all', [CompletionResultType]::ParameterName, 'Everything that is held, whoever has taken it')
            [CompletionResult]::new('-c', '-c', [CompletionResultType]::ParameterName, 'Only say how many they are')
            [CompletionResult]::new('--count', '--count', [CompletionResultType]::ParameterName, 'Only say how many they are')
            [CompletionResult]::new('-0', '-0', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--null', '--null', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'End with status 6 before the first message that holds its own delimiter')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mmq;tail' {
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'So many of the newest [default: 10]')
            [CompletionResult]::new('--messages', '--messages', [CompletionResultType]::ParameterName, 'So many of the newest [default: 10]')
            [CompletionResult]::new('--from', '--from', [CompletionResultType]::ParameterName, 'Begin there')
            [CompletionResult]::new('--interval', '--interval', [CompletionResultType]::ParameterName, 'How often to look for more [default: 50ms]')
            [CompletionResult]::new('--grep', '--grep', [CompletionResultType]::ParameterName, 'Only messages that hold these bytes')
            [CompletionResult]::new('--head', '--head', [CompletionResultType]::ParameterName, 'Only so many first bytes of each')
            [CompletionResult]::new('--framing', '--framing', [CompletionResultType]::ParameterName, 'Where a message ends [default: line]')
            [CompletionResult]::new('--decode', '--decode', [CompletionResultType]::ParameterName, 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once')
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Go on with the messages that come, for ever')
            [CompletionResult]::new('--follow', '--follow', [CompletionResultType]::ParameterName, 'Go on with the messages that come, for ever')
            [CompletionResult]::new('--durable', '--durable', [CompletionResultType]::ParameterName, 'Only messages that a power cut cannot take')
            [CompletionResult]::new('-0', '-0', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--null', '--null', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'End with status 6 before the first message that holds its own delimiter')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mmq;gaps' {
            [CompletionResult]::new('--deep', '--deep', [CompletionResultType]::ParameterName, 'Read every message')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;verify' {
            [CompletionResult]::new('--color', '--color', [CompletionResultType]::ParameterName, 'Colours; auto: on a terminal, unless NO_COLOR is set or TERM is dumb [default: auto]')
            [CompletionResult]::new('--quick', '--quick', [CompletionResultType]::ParameterName, 'Leave the messages out: the index and the headers of segments alone')
            [CompletionResult]::new('--as-opened', '--as-opened', [CompletionResultType]::ParameterName, 'First say what the next opening will make of the queue')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;put' {
            [CompletionResult]::new('--max-bytes', '--max-bytes', [CompletionResultType]::ParameterName, 'The most disk that the queue may take')
            [CompletionResult]::new('--on-full', '--on-full', [CompletionResultType]::ParameterName, 'What to do when there is no room [default: reject]')
            [CompletionResult]::new('--arena-size', '--arena-size', [CompletionResultType]::ParameterName, 'The unit of mapping, for new files [default: 128MiB]')
            [CompletionResult]::new('--mode', '--mode', [CompletionResultType]::ParameterName, 'Permission bits of the queue''s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]')
            [CompletionResult]::new('--framing', '--framing', [CompletionResultType]::ParameterName, 'Where a message ends [default: line]')
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('--batch', '--batch', [CompletionResultType]::ParameterName, 'Put in all of the input, or nothing, also after a crash')
            [CompletionResult]::new('--print-seq', '--print-seq', [CompletionResultType]::ParameterName, 'Print the number of each message')
            [CompletionResult]::new('--no-flush', '--no-flush', [CompletionResultType]::ParameterName, 'Leave it to the system when the messages reach the disk')
            [CompletionResult]::new('-0', '-0', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--null', '--null', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--keep-cr', '--keep-cr', [CompletionResultType]::ParameterName, 'With line framing: a carriage return before a newline belongs to the message')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mmq;take' {
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'At most so many [default: all there are]')
            [CompletionResult]::new('--count', '--count', [CompletionResultType]::ParameterName, 'At most so many [default: all there are]')
            [CompletionResult]::new('--consumer', '--consumer', [CompletionResultType]::ParameterName, 'The consumer whose messages they are [default: the queue''s own, which has no name]')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Wait for the first message, so long or for ever; status 3 when none came')
            [CompletionResult]::new('--framing', '--framing', [CompletionResultType]::ParameterName, 'Where a message ends [default: line]')
            [CompletionResult]::new('--decode', '--decode', [CompletionResultType]::ParameterName, 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once')
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('--sync', '--sync', [CompletionResultType]::ParameterName, 'Remove a message only when it is durable in the file that it is written to')
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Go on for ever. While nothing is there, others can open the queue')
            [CompletionResult]::new('--follow', '--follow', [CompletionResultType]::ParameterName, 'Go on for ever. While nothing is there, others can open the queue')
            [CompletionResult]::new('-0', '-0', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--null', '--null', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'End with status 6 before the first message that holds its own delimiter')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mmq;each' {
            [CompletionResult]::new('-j', '-j', [CompletionResultType]::ParameterName, 'How many commands run at a time [default: 1]')
            [CompletionResult]::new('--jobs', '--jobs', [CompletionResultType]::ParameterName, 'How many commands run at a time [default: 1]')
            [CompletionResult]::new('--retries', '--retries', [CompletionResultType]::ParameterName, 'How often a message comes again [default: 5]')
            [CompletionResult]::new('--dead', '--dead', [CompletionResultType]::ParameterName, 'The queue for messages that failed too often; it is made when it is missing, as open to others as DIR')
            [CompletionResult]::new('--backoff', '--backoff', [CompletionResultType]::ParameterName, 'Wait so long after the first failure, twice as long after each further one, an hour at most')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Kill a command, and all that it has started, after so long: it has failed')
            [CompletionResult]::new('--consumer', '--consumer', [CompletionResultType]::ParameterName, 'The consumer whose messages they are [default: the queue''s own, which has no name]')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Wait for the first message, so long or for ever; status 3 when none came')
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('-f', '-f', [CompletionResultType]::ParameterName, 'Go on for ever. While nothing is there, others can open the queue')
            [CompletionResult]::new('--follow', '--follow', [CompletionResultType]::ParameterName, 'Go on for ever. While nothing is there, others can open the queue')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;redrive' {
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'At most so many [default: all there are]')
            [CompletionResult]::new('--count', '--count', [CompletionResultType]::ParameterName, 'At most so many [default: all there are]')
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;forward' {
            [CompletionResult]::new('--consumer', '--consumer', [CompletionResultType]::ParameterName, 'The consumer that it reads through [default: forward]')
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'What the far side calls the queue [default: its directory''s]')
            [CompletionResult]::new('--keep', '--keep', [CompletionResultType]::ParameterName, 'Keep so many messages that are there [default: 10000]')
            [CompletionResult]::new('--keep-bytes', '--keep-bytes', [CompletionResultType]::ParameterName, 'Keep so many bytes of them [default: 64M]')
            [CompletionResult]::new('--on-refused', '--on-refused', [CompletionResultType]::ParameterName, 'What becomes of a message that the far side refuses [default: stop]')
            [CompletionResult]::new('--dead', '--dead', [CompletionResultType]::ParameterName, 'The queue for refused messages; it is made when it is missing, as open to others as DIR')
            [CompletionResult]::new('--if-forgotten', '--if-forgotten', [CompletionResultType]::ParameterName, 'When the far side has forgotten the queue: send what is kept, or go on')
            [CompletionResult]::new('--gaps', '--gaps', [CompletionResultType]::ParameterName, 'How missing messages are reported to the far side [default: header]')
            [CompletionResult]::new('--metrics', '--metrics', [CompletionResultType]::ParameterName, 'Keep figures for Prometheus in this file')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The stream''s key')
            [CompletionResult]::new('--stream', '--stream', [CompletionResultType]::ParameterName, 'The stream')
            [CompletionResult]::new('--subject', '--subject', [CompletionResultType]::ParameterName, 'The subject [default: mmq.NAME]')
            [CompletionResult]::new('--mode', '--mode', [CompletionResultType]::ParameterName, 'How messages are sent [default: as the stream allows]')
            [CompletionResult]::new('--creds', '--creds', [CompletionResultType]::ParameterName, 'The credentials file')
            [CompletionResult]::new('--nkey', '--nkey', [CompletionResultType]::ParameterName, 'The file with the seed of an nkey')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'The certificates of authorities to trust')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'The client''s certificate')
            [CompletionResult]::new('--cert-key', '--cert-key', [CompletionResultType]::ParameterName, 'The client''s private key')
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('--once', '--once', [CompletionResultType]::ParameterName, 'End when all that is here is there, and not at a signal alone')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;consumers' {
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Make a consumer')
            [CompletionResult]::new('seek', 'seek', [CompletionResultType]::ParameterValue, 'Move a consumer')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove a consumer')
            [CompletionResult]::new('fork', 'fork', [CompletionResultType]::ParameterValue, 'Make a consumer at the place of another')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mmq;consumers;add' {
            [CompletionResult]::new('--at', '--at', [CompletionResultType]::ParameterName, 'Where it begins [default: first]')
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Give messages up without asking')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Give messages up without asking')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;consumers;seek' {
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Give messages up without asking')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Give messages up without asking')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;consumers;rm' {
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Give messages up without asking')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Give messages up without asking')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;consumers;fork' {
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;consumers;help' {
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Make a consumer')
            [CompletionResult]::new('seek', 'seek', [CompletionResultType]::ParameterValue, 'Move a consumer')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove a consumer')
            [CompletionResult]::new('fork', 'fork', [CompletionResultType]::ParameterValue, 'Make a consumer at the place of another')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mmq;consumers;help;add' {
            break
        }
        'mmq;consumers;help;seek' {
            break
        }
        'mmq;consumers;help;rm' {
            break
        }
        'mmq;consumers;help;fork' {
            break
        }
        'mmq;consumers;help;help' {
            break
        }
        'mmq;purge' {
            [CompletionResult]::new('--before', '--before', [CompletionResultType]::ParameterName, 'Up to there [default: last, all of them]')
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Give messages up without asking')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Give messages up without asking')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;copy' {
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('--new-id', '--new-id', [CompletionResultType]::ParameterName, 'The copy is a queue of its own, with an id of its own [the default]')
            [CompletionResult]::new('--same-id', '--same-id', [CompletionResultType]::ParameterName, 'The copy is a backup with the queue''s id, to replace the queue')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;dump' {
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;load' {
            [CompletionResult]::new('--arena-size', '--arena-size', [CompletionResultType]::ParameterName, 'The unit of mapping [default: 128MiB]')
            [CompletionResult]::new('--mode', '--mode', [CompletionResultType]::ParameterName, 'Permission bits of the queue''s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;salvage' {
            [CompletionResult]::new('--to', '--to', [CompletionResultType]::ParameterName, 'Put the messages into a new queue: a directory that is missing or empty')
            [CompletionResult]::new('--mode', '--mode', [CompletionResultType]::ParameterName, 'Permission bits of NEW''s files, as 640 [default: those that all the files have that are read]')
            [CompletionResult]::new('--framing', '--framing', [CompletionResultType]::ParameterName, 'Where a message ends [default: line]')
            [CompletionResult]::new('--decode', '--decode', [CompletionResultType]::ParameterName, 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once')
            [CompletionResult]::new('--spares', '--spares', [CompletionResultType]::ParameterName, 'Drained segments too: messages that were taken come back')
            [CompletionResult]::new('-0', '-0', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--null', '--null', [CompletionResultType]::ParameterName, 'The same as --framing null')
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'End with status 6 before the first message that holds its own delimiter')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'mmq;import' {
            [CompletionResult]::new('--as', '--as', [CompletionResultType]::ParameterName, 'What the directory is [default: its files'' names say]')
            [CompletionResult]::new('--order', '--order', [CompletionResultType]::ParameterName, 'What the order of pqueue''s segments goes by [default: name]')
            [CompletionResult]::new('--rename', '--rename', [CompletionResultType]::ParameterName, 'Call a consumer otherwise; OLD as it is, or as a report writes it')
            [CompletionResult]::new('--stop-at-empty-run', '--stop-at-empty-run', [CompletionResultType]::ParameterName, 'End the queue before so many messages of no bytes that follow each other')
            [CompletionResult]::new('--mode', '--mode', [CompletionResultType]::ParameterName, 'Permission bits of the queue''s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Check and report alone')
            [CompletionResult]::new('--dry-run', '--dry-run', [CompletionResultType]::ParameterName, 'Check and report alone')
            [CompletionResult]::new('--all', '--all', [CompletionResultType]::ParameterName, 'Also what every consumer has taken, as far as it is there')
            [CompletionResult]::new('--force', '--force', [CompletionResultType]::ParameterName, 'Also when a process has the files open')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;spool' {
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'Write there instead')
            [CompletionResult]::new('--arena-size', '--arena-size', [CompletionResultType]::ParameterName, 'The unit of mapping [default: 128MiB]')
            [CompletionResult]::new('--mode', '--mode', [CompletionResultType]::ParameterName, 'Permission bits of the queue''s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]')
            [CompletionResult]::new('--wait-lock', '--wait-lock', [CompletionResultType]::ParameterName, 'Wait while another process has the queue, so long or for ever; status 4 then')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;bench' {
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Length of a message [default: 128]')
            [CompletionResult]::new('--count', '--count', [CompletionResultType]::ParameterName, 'How many messages [default: 1000000, or 256 MiB of them; 1000 with --durable]')
            [CompletionResult]::new('--threads', '--threads', [CompletionResultType]::ParameterName, 'How many threads put in, and how many take out meanwhile [default: 1,1]')
            [CompletionResult]::new('--durable', '--durable', [CompletionResultType]::ParameterName, 'Each message is durable when its call returns')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;completions' {
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;man' {
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'For programs: JSON on standard output, and a failure as the last line of standard error')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Say nothing on standard error but failures')
            [CompletionResult]::new('--no-progress', '--no-progress', [CompletionResultType]::ParameterName, 'Draw no line of progress')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'mmq;help' {
            [CompletionResult]::new('stat', 'stat', [CompletionResultType]::ParameterValue, 'Figures of queues: how many messages wait, how old, who has it')
            [CompletionResult]::new('cat', 'cat', [CompletionResultType]::ParameterValue, 'Show the messages that wait for a consumer, the oldest first, and leave them there')
            [CompletionResult]::new('tail', 'tail', [CompletionResultType]::ParameterValue, 'Show the newest messages, and follow')
            [CompletionResult]::new('gaps', 'gaps', [CompletionResultType]::ParameterValue, 'Show which messages will never come, and why')
            [CompletionResult]::new('verify', 'verify', [CompletionResultType]::ParameterValue, 'Check every header, checksum, number, seal and place, and say what is damaged')
            [CompletionResult]::new('put', 'put', [CompletionResultType]::ParameterValue, 'Put messages in, from standard input or files; status 0: a power cut takes none of them')
            [CompletionResult]::new('take', 'take', [CompletionResultType]::ParameterValue, 'Remove messages and print them, the oldest first')
            [CompletionResult]::new('each', 'each', [CompletionResultType]::ParameterValue, 'Run a command for each message, until it succeeds')
            [CompletionResult]::new('redrive', 'redrive', [CompletionResultType]::ParameterValue, 'Put dead letters back into their queue')
            [CompletionResult]::new('forward', 'forward', [CompletionResultType]::ParameterValue, 'Send messages on to NATS JetStream or a Redis stream, each once')
            [CompletionResult]::new('consumers', 'consumers', [CompletionResultType]::ParameterValue, 'Consumers: each has a place of its own and sees every message')
            [CompletionResult]::new('purge', 'purge', [CompletionResultType]::ParameterValue, 'Give up messages: every consumer goes on behind them')
            [CompletionResult]::new('copy', 'copy', [CompletionResultType]::ParameterValue, 'Make a second queue with the same messages, numbers and consumers')
            [CompletionResult]::new('dump', 'dump', [CompletionResultType]::ParameterValue, 'Print all of a queue as JSON lines, for `mmq load`')
            [CompletionResult]::new('load', 'load', [CompletionResultType]::ParameterValue, 'Make a queue out of what `mmq dump` printed')
            [CompletionResult]::new('salvage', 'salvage', [CompletionResultType]::ParameterValue, 'Get messages out of segment files: damaged, set aside, drained, or without their queue')
            [CompletionResult]::new('import', 'import', [CompletionResultType]::ParameterValue, 'Make a queue of a directory of bigqueue or pqueue, which is only read')
            [CompletionResult]::new('spool', 'spool', [CompletionResultType]::ParameterValue, 'Send a file through a queue, line by line, and check that it comes out unchanged')
            [CompletionResult]::new('bench', 'bench', [CompletionResultType]::ParameterValue, 'Measure what the disk of a directory gives, in a queue that is removed at the end')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print what a shell needs to complete this tool''s command line')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Print this tool''s page of the manual, or write those of all commands into a directory')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'mmq;help;stat' {
            break
        }
        'mmq;help;cat' {
            break
        }
        'mmq;help;tail' {
            break
        }
        'mmq;help;gaps' {
            break
        }
        'mmq;help;verify' {
            break
        }
        'mmq;help;put' {
            break
        }
        'mmq;help;take' {
            break
        }
        'mmq;help;each' {
            break
        }
        'mmq;help;redrive' {
            break
        }
        'mmq;help;forward' {
            break
        }
        'mmq;help;consumers' {
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Make a consumer')
            [CompletionResult]::new('seek', 'seek', [CompletionResultType]::ParameterValue, 'Move a consumer')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove a consumer')
            [CompletionResult]::new('fork', 'fork', [CompletionResultType]::ParameterValue, 'Make a consumer at the place of another')
            break
        }
        'mmq;help;consumers;add' {
            break
        }
        'mmq;help;consumers;seek' {
            break
        }
        'mmq;help;consumers;rm' {
            break
        }
        'mmq;help;consumers;fork' {
            break
        }
        'mmq;help;purge' {
            break
        }
        'mmq;help;copy' {
            break
        }
        'mmq;help;dump' {
            break
        }
        'mmq;help;load' {
            break
        }
        'mmq;help;salvage' {
            break
        }
        'mmq;help;import' {
            break
        }
        'mmq;help;spool' {
            break
        }
        'mmq;help;bench' {
            break
        }
        'mmq;help;completions' {
            break
        }
        'mmq;help;man' {
            break
        }
        'mmq;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
